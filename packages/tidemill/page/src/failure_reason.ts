/** The parts of a FailureReason, so that the frames of the user's own code can be set apart. */

export interface Frame {
  file: string;
  line: number;
  function: string;
  code: string;
}

export interface FailureParts {
  /** For example `AlgorithmError: ExecuteUserScriptError`. */
  head: string;
  message: string;
  /** The innermost last. */
  frames: Frame[];
  exitCode: string;
  command: string;
}

const REPORT = /^([\s\S]*?):?\s*\nExitCode (-?\d+)\nErrorMessage "([\s\S]*)"\s*\nCommand "([\s\S]*)"$/;
const FRAME = /^ {2}File "(.+)", line (\d+)(?:, in (.+))?$/;

/** The parts; null for a text of another form. */
export function failureParts(reason: string): FailureParts | null {
  const match = REPORT.exec(reason.trimEnd());
  if (!match) return null;
  const [, head = "", exitCode = "", text = "", command = ""] = match;
  const message: string[] = [];
  const frames: Frame[] = [];
  for (const line of text.split("\n")) {
    const frame = FRAME.exec(line);
    const last = frames[frames.length - 1];
    if (frame) {
      const [, file = "", number = "", name = ""] = frame;
      frames.push({ file, line: Number(number), function: name, code: "" });
    } else if (last && !last.code && line.startsWith("    ")) last.code = line.trim();
    else message.push(line);
  }
  return { head, message: message.join("\n").trim(), frames, exitCode, command };
}
