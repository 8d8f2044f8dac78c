import type { ComponentChildren } from "preact";

interface PlainTableProps {
  /** What the table has, for those who cannot see it. */
  label: string;
  titles: readonly string[];
  /** The rows. */
  children: ComponentChildren;
}

/** A table of few rows, which scrolls sideways by itself where it is too wide. */
export function PlainTable({ label, titles, children }: PlainTableProps) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={label}>
      <table class="plain">
        <thead>
          <tr>
            {titles.map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
