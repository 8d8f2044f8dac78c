/**
 * Text of users, made safe to look at. Markup needs nothing here, since text is only ever a text node; but characters
 * that cannot be seen, or that reorder their neighbors, would let a name or a line of a log look like another one.
 */

// C0 and C1 controls, soft hyphen, bidi marks and overrides, zero-width and other format characters, line and
// paragraph separators, tag characters, and surrogates without their other half.
const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Surrogate}/gu;

export interface ShownOptions {
  /** Keep line feeds and tabs, for text in a block that shows them. */
  lines?: boolean;
}

/** The text with a visible sign in place of each character that has none of its own. */
export function shown(text: string, options: ShownOptions = {}): string {
  return text.replace(HIDDEN, (character) => {
    if (options.lines && (character === "\n" || character === "\t")) return character;
    const code = character.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

export interface Cut {
  text: string;
  /** Number of characters that were left out. */
  left: number;
}

/** The first `max` characters, cut between two code points, and how many more there are. */
export function cut(text: string, max: number): Cut {
  if (text.length <= max) return { text, left: 0 };
  const code = text.charCodeAt(max - 1);
  const end = code >= 0xd800 && code < 0xdc00 ? max - 1 : max;
  return { text: text.slice(0, end), left: text.length - end };
}

/** The text cut in its middle, as names that differ at their end need it. */
export function cutMiddle(text: string, max: number): string {
  const points = [...text];
  if (points.length <= max) return text;
  const head = Math.ceil((max - 1) / 2);
  return `${points.slice(0, head).join("")}\u2026${points.slice(points.length - (max - 1 - head)).join("")}`;
}
