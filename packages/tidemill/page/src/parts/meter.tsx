import { bytes } from "../numbers";

interface MeterProps {
  label: string;
  used: number;
  total: number;
}

/** How much of something is used, in words and as a bar. */
export function Meter({ label, used, total }: MeterProps) {
  const share = total > 0 ? used / total : 0;
  return (
    <div class="meter">
      <span>
        {bytes(used)} of {bytes(total)} used
      </span>
      <meter aria-label={label} min={0} max={1} high={0.9} value={share}>
        {Math.round(share * 100)} %
      </meter>
    </div>
  );
}
