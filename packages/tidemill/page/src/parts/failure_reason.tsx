import { failureParts } from "../failure_reason";
import { shown } from "../shown_text";
import { Text } from "./text";

/** Why a job failed, with the frames of the user's own code set apart. */
export function FailureReason({ reason }: { reason: string }) {
  const parts = failureParts(reason);
  if (!parts) {
    return (
      <section class="failure" aria-label="Failure">
        <Text value={reason} lines />
      </section>
    );
  }
  return (
    <section class="failure" aria-label="Failure">
      <p>
        <strong>
          <Text value={parts.message || parts.head} lines />
        </strong>
      </p>
      {parts.frames.length > 0 && (
        <ol class="frames" aria-label="Frames of your code">
          {parts.frames.map((frame, index) => (
            <li key={index}>
              <span>
                {shown(frame.file)}, line {frame.line}
                {frame.function && `, in ${shown(frame.function)}`}
              </span>
              {frame.code && <pre>{shown(frame.code)}</pre>}
            </li>
          ))}
        </ol>
      )}
      <p class="quiet">
        {shown(parts.head)} · exit code {parts.exitCode}
        {parts.command && (
          <>
            {" "}
            · <code>{shown(parts.command)}</code>
          </>
        )}
      </p>
    </section>
  );
}
