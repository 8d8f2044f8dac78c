import type { Answer } from "../model_request";
import { bytes as sizeText, figure } from "../numbers";
import { objectLink } from "../objects";
import { saveFile } from "../saved_file";
import { shown } from "../shown_text";
import { Link } from "./link";
import { Preview } from "./preview";

const ENDS: Readonly<Record<string, string>> = {
  "application/json": "json",
  "text/csv": "csv",
  "image/png": "png",
  "image/jpeg": "jpeg",
};

/** The answer of a model. Its media type says only how it may be shown. */
export function AnswerOf({ answer }: { answer: Answer }) {
  const type = answer.contentType.split(";")[0]?.trim().toLowerCase() ?? "";
  const name = `answer.${ENDS[type] ?? "txt"}`;
  return (
    <section aria-label="Answer">
      <h3>Answer</h3>
      <p>
        {figure(Math.round(answer.milliseconds))} ms, {sizeText(answer.bytes.length)}
        {answer.contentType && `, ${shown(answer.contentType)}`}
        {answer.variant && `, from ${shown(answer.variant)}`}{" "}
        <button type="button" onClick={() => saveFile(name, answer.bytes)}>
          Save the answer
        </button>
      </p>
      {answer.location && (
        <p>
          Stored as{" "}
          <Link {...objectLink(answer.location)}>
            {shown(`s3://${answer.location.bucket}/${answer.location.key}`)}
          </Link>
        </p>
      )}
      <Preview name={name} bytes={answer.bytes} size={answer.bytes.length} />
    </section>
  );
}
