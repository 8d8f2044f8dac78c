/** The lines of a log that are in the browser: those that are looked at, of a log of any length. */

import { isRefusal } from "./service";

export interface LogLine {
  /** From 0 on; people count from 1. */
  Number: number;
  Message: string;
  Time?: number;
  /** Size of the whole message, of which a long one has only the first part. */
  Bytes: number;
  /** Whether a later line can still overwrite it, as in a progress bar. */
  IsState: boolean;
}

export interface LinesAnswer {
  Lines: LogLine[];
  FirstKept: number;
  Count: number;
}

export type FetchLines = (first: number, limit: number) => Promise<LinesAnswer>;

/** A request that failed is sent again after this time. */
const AGAIN_MS = 3000;

export const PAGE = 200;
const PAGES_KEPT = 100;
const FETCHED_AT_ONCE = 2;
const NEW_MAX = 1000;

export class LogLines {
  /** Number after that of the last line. */
  count = 0;
  /** Number of the first line that is still kept. */
  firstKept = 0;
  error: unknown = null;
  /** Whether the service has answered. */
  isKnown = false;
  private readonly pages = new Map<number, LogLine[]>();
  private readonly loading = new Set<number>();
  private wanted: number[] = [];
  private inSight: readonly [first: number, last: number] = [0, -1];

  constructor(
    private readonly fetchLines: FetchLines,
    private readonly changed: () => void,
  ) {}

  /** Number of the lines that no later one can overwrite. */
  get settled(): number {
    return this.count - (this.line(this.count - 1)?.IsState ? 1 : 0);
  }

  line(number: number): LogLine | undefined {
    return this.pages.get(Math.floor(number / PAGE))?.[number % PAGE];
  }

  /** Load the lines of a range that are not here. A later wish replaces an earlier one that has not begun. */
  want(first: number, last: number): void {
    this.inSight = [first, last];
    const pages: number[] = [];
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) {
      if (page * PAGE < this.count && !this.isWhole(page)) pages.push(page);
    }
    this.wanted = pages;
    this.loadNext();
  }

  /** Look for new lines. */
  async refresh(): Promise<void> {
    try {
      this.take(await this.fetchLines(Math.max(0, this.count - 1), NEW_MAX));
      this.error = null;
    } catch (error) {
      if (isAbort(error)) return;
      this.error = error;
    }
    this.changed();
  }

  private isWhole(page: number): boolean {
    const lines = this.pages.get(page);
    if (!lines) return false;
    const expected = Math.min(PAGE, this.count - page * PAGE);
    for (let index = 0; index < expected; index += 1) if (!lines[index]) return page * PAGE + index < this.firstKept;
    return true;
  }

  private loadNext(): void {
    while (this.loading.size < FETCHED_AT_ONCE) {
      const page = this.wanted.find((each) => !this.loading.has(each));
      if (page === undefined) return;
      this.wanted = this.wanted.filter((each) => each !== page);
      this.loading.add(page);
      void this.load(page);
    }
  }

  private async load(page: number): Promise<void> {
    try {
      this.take(await this.fetchLines(page * PAGE, PAGE));
      this.error = null;
    } catch (error) {
      if (isAbort(error)) return;
      this.error = error;
      // Nothing else would ask for these lines again.
      if (!isRefusal(error)) setTimeout(() => this.want(...this.inSight), AGAIN_MS);
    } finally {
      this.loading.delete(page);
    }
    this.changed();
    this.loadNext();
  }

  private take(answer: LinesAnswer): void {
    this.count = Math.max(this.count, answer.Count);
    this.firstKept = answer.FirstKept;
    this.isKnown = true;
    for (const line of answer.Lines) {
      const page = Math.floor(line.Number / PAGE);
      let lines = this.pages.get(page);
      if (!lines) {
        lines = [];
        this.pages.set(page, lines);
      }
      lines[line.Number % PAGE] = line;
    }
    for (const page of this.pages.keys()) {
      if (this.pages.size <= PAGES_KEPT) break;
      this.pages.delete(page);
    }
  }
}

function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export interface Wanted {
  text: string;
  isRegex: boolean;
  ignoreCase: boolean;
}

export interface SearchAnswer {
  Lines: number[];
  NextLine: number;
  IsComplete: boolean;
  TookTooLong: boolean;
}

export type FetchFound = (wanted: Wanted, first: number, limit: number, signal: AbortSignal) => Promise<SearchAnswer>;

export const FOUND_MAX = 10_000;
const PAUSE_MS = 3000;

/** A search in a log, which goes on in lines that come later. */
export class LogSearch {
  lines: number[] = [];
  isRunning = false;
  tookTooLong = false;
  error: unknown = null;
  private next = 0;
  private pausedUntil = 0;
  private isOver = false;
  private readonly control = new AbortController();

  constructor(
    readonly wanted: Wanted,
    private readonly fetchFound: FetchFound,
    private readonly changed: () => void,
  ) {}

  get hasMore(): boolean {
    return this.lines.length >= FOUND_MAX;
  }

  /** Search no further, e.g. since other words are searched. */
  end(): void {
    this.isOver = true;
    this.control.abort();
  }

  /** Search the lines up to a number that were not searched yet: at once, and later at most every three seconds. */
  async goOn(count: number): Promise<void> {
    if (this.isRunning || this.isOver || this.next >= count || performance.now() < this.pausedUntil) return;
    this.isRunning = true;
    this.pausedUntil = performance.now() + PAUSE_MS;
    this.changed();
    try {
      const answer = await this.fetchFound(this.wanted, this.next, FOUND_MAX - this.lines.length, this.control.signal);
      this.lines = this.lines.concat(answer.Lines);
      this.next = answer.NextLine;
      this.tookTooLong = answer.TookTooLong;
      // An expression that took too long would do so again.
      this.isOver = answer.TookTooLong || this.hasMore;
      this.error = null;
    } catch (error) {
      if (isAbort(error)) return;
      this.error = error;
      this.isOver = isRefusal(error);
      if (!this.isOver) setTimeout(() => void this.goOn(count), PAUSE_MS);
    }
    this.isRunning = false;
    this.changed();
  }

  /** The line of the first match at or after a line; the first of all after the last one. */
  after(number: number): number | undefined {
    return this.lines[this.indexFrom(number)] ?? this.lines[0];
  }

  before(number: number): number | undefined {
    return this.lines[this.indexFrom(number) - 1] ?? this.lines[this.lines.length - 1];
  }

  has(number: number): boolean {
    return this.lines[this.indexFrom(number)] === number;
  }

  /** From 1 on; 0 if the line has no match. */
  position(number: number): number {
    return this.has(number) ? this.indexFrom(number) + 1 : 0;
  }

  /** Index of the first match at or after a line. */
  private indexFrom(number: number): number {
    let [low, high] = [0, this.lines.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.lines[middle] ?? 0) < number) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
