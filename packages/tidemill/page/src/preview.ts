/** What can be shown of a file, by its name and its first bytes. Nothing of it is ever markup. */

export type PreviewKind = "image" | "json" | "table" | "text" | "none";

/** Bytes of a file that are read to show it; images are read whole. */
export const PREVIEW_BYTES = 256 * 1024;
export const IMAGE_MAX_BYTES = 8 * 1024 * 1024;

const ROWS_MAX = 200;
const COLUMNS_MAX = 50;

const IMAGES: Readonly<Record<string, string>> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  bmp: "image/bmp",
  svg: "image/svg+xml",
};
const ARCHIVES = /\.(tar|tgz|tar\.gz|tar\.bz2|tar\.xz|tbz2|txz|zip|keras|npz|whl)$/i;

/** Media type of an image by the end of its name; undefined for other files. */
export function imageType(name: string): string | undefined {
  return IMAGES[extension(name)];
}

/** Whether the service may list what is in a file of this name. */
export function isArchive(name: string): boolean {
  return ARCHIVES.test(name);
}

export function previewKind(name: string, bytes: Uint8Array): PreviewKind {
  if (imageType(name)) return "image";
  if (!isText(bytes)) return "none";
  const end = extension(name);
  if (end === "json" || end === "ipynb") return "json";
  return end === "csv" || end === "tsv" ? "table" : "text";
}

/** Whether bytes are UTF-8 without the control characters of binary files; they may be cut within a character. */
export function isText(bytes: Uint8Array): boolean {
  if (bytes.subarray(0, 8192).includes(0)) return false;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return true;
  } catch {
    return false;
  }
}

/**
 * JSON in lines; the text as it is if it is cut or malformed. Values are copied: JavaScript would round long integers, lose
 * the sign of -0, and merge members of one name.
 */
export function prettyJson(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const parts: string[] = [];
  let depth = 0;
  const broken = (): string => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[{]\s*[\]}]|[[\]{},:]|[^\s[\]{},:"]+/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
      parts.push(token, broken());
    } else if (token === "}" || token === "]") {
      depth -= 1;
      parts.push(broken(), token);
    } else if (token === ",") parts.push(token, broken());
    else if (token === ":") parts.push(": ");
    else parts.push(/^[[{]/.test(token) ? token.replace(/\s/g, "") : token);
  }
  return parts.join("");
}

export interface Table {
  rows: string[][];
  /** Whether there are more rows or columns. */
  isCut: boolean;
}

/** The first rows of CSV, as RFC 4180 describes it, or of text separated by tabs. */
export function parseTable(text: string, separator: string): Table {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let isQuoted = false;
  let isCut = false;
  const endCell = (): void => {
    if (row.length < COLUMNS_MAX) row.push(cell);
    else isCut = true;
    cell = "";
  };
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at]!;
    if (isQuoted) {
      if (character !== '"') cell += character;
      else if (text[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else isQuoted = false;
    } else if (character === '"' && cell === "") isQuoted = true;
    else if (character === separator) endCell();
    else if (character === "\n") {
      endCell();
      rows.push(row);
      row = [];
      if (rows.length === ROWS_MAX) return { rows, isCut: isCut || at < text.length - 1 };
    } else if (character !== "\r") cell += character;
  }
  if (cell || row.length) {
    endCell();
    rows.push(row);
  }
  return { rows, isCut };
}

function extension(name: string): string {
  return /\.([a-z0-9]{1,5})$/i.exec(name)?.[1]?.toLowerCase() ?? "";
}
