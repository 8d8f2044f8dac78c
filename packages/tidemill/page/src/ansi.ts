/** The colors that a program asked for by ANSI's escape sequences. Other sequences, e.g. of the cursor, have no effect. */

export interface Piece {
  text: string;
  /** Names of classes: `ansi-1` to `ansi-7`, `ansi-bold`, `ansi-faint`, `ansi-italic`, `ansi-underline`; maybe none. */
  classes: string;
}

// CSI sequences, OSC sequences (titles, links), and other short ones.
const SEQUENCE = /\u001b(?:\[([0-9;:]*)([ -/]*[@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|[ -/]*[0-~])/g;
const FLAGS: Readonly<Record<number, string>> = { 1: "bold", 2: "faint", 3: "italic", 4: "underline" };
const PIECES_MAX = 500;

/** The text in pieces of one color. Only the first 500 changes of color are followed: a line has no more. */
export function pieces(text: string): Piece[] {
  if (!text.includes("\u001b")) return [{ text, classes: "" }];
  const found: Piece[] = [];
  const flags = new Set<string>();
  let color = 0;
  let begin = 0;
  const add = (end: number): void => {
    if (end === begin) return;
    const names = [...(color ? [`ansi-${color}`] : []), ...[...flags].map((flag) => `ansi-${flag}`)];
    const piece = { text: text.slice(begin, end), classes: names.join(" ") };
    const last = found[found.length - 1];
    if (last && (last.classes === piece.classes || found.length >= PIECES_MAX)) last.text += piece.text;
    else found.push(piece);
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(match.index);
    begin = match.index + match[0].length;
    if (match[2] === "m") color = changed(color, flags, match[1] ?? "");
  }
  add(text.length);
  return found;
}

/** The text without the sequences, for copies and searches. */
export function plain(text: string): string {
  return text.replace(SEQUENCE, "");
}

/** Apply the codes of one sequence: change the flags, and return the color. */
function changed(color: number, flags: Set<string>, codes: string): number {
  const numbers = codes.split(/[;:]/).map(Number);
  for (let index = 0; index < numbers.length; index += 1) {
    const code = numbers[index] ?? 0;
    if (code === 0) {
      flags.clear();
      color = 0;
    } else if (code === 22) {
      flags.delete("bold");
      flags.delete("faint");
    } else if (code === 23 || code === 24) flags.delete(code === 23 ? "italic" : "underline");
    else if (FLAGS[code]) flags.add(FLAGS[code]);
    else if (code === 39) color = 0;
    else if (code >= 30 && code < 38) color = code - 30;
    else if (code >= 90 && code < 98) color = code - 90;
    else if (code === 38 || code === 48) {
      const [nearest, used] = extended(numbers.slice(index + 1));
      if (code === 38) color = nearest;
      index += used;
    }
  }
  return color;
}

/** The nearest of the eight colors to one of the 256, or to one of red, green and blue; and how many codes it took. */
function extended(codes: readonly number[]): [number, number] {
  const [form, first = 0, second = 0, third = 0] = codes;
  if (form === 2) return [nearest(first, second, third), 4];
  if (form !== 5) return [0, 0];
  if (first < 16) return [first % 8, 2];
  if (first >= 232) return [first > 243 ? 7 : 0, 2];
  const cube = first - 16;
  const level = (value: number): number => (value ? 55 + 40 * value : 0);
  return [nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)), 2];
}

function nearest(red: number, green: number, blue: number): number {
  const half = Math.max(red, green, blue) / 2;
  return (red > half ? 1 : 0) + (green > half ? 2 : 0) + (blue > half ? 4 : 0);
}
