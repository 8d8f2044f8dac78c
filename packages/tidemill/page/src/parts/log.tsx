import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { pieces, plain } from "../ansi";
import { LINE_BYTES, linesOf, searchOf, wholeLine } from "../job_calls";
import { FOUND_MAX, type LogLine, LogLines, LogSearch, type Wanted } from "../log_lines";
import { time } from "../numbers";
import { cut, shown } from "../shown_text";
import { useEvery } from "../visible";
import { Copy } from "./copy";
import { Failure } from "./failure";
import { Text } from "./text";
import "./log.css";

const LINE_PX = 17;
/** Browsers have a highest box: what is more than that is in another window of lines. */
const WINDOW_LINES = 1_000_000;
const OVERSCAN = 8;
const SHOWN_CHARS = 1000;
const WHOLE_CHARS = 10_000;
const LOOK_MS = 1000;
const AGAIN_MS = 3000;
const TYPING_MS = 250;

interface LogProps {
  group: string;
  stream: string;
  /** Whether lines still come. */
  isLive: boolean;
}

/** The log of one instance: any number of lines, of which those in sight are loaded. */
export function Log({ group, stream, isLive }: LogProps) {
  const [, setVersion] = useState(0);
  const update = (): void => setVersion((version) => version + 1);
  const control = useMemo(() => new AbortController(), [group, stream]);
  const lines = useMemo(() => new LogLines(linesOf(group, stream, control.signal), update), [control]);
  useEffect(() => () => control.abort(), [control]);
  const [marked, setMarked] = useMarked();
  const [follows, setFollows] = useState(isLive && marked === null);
  const [open, setOpen] = useState<number | null>(null);
  const [search, setSearch] = useState<LogSearch | null>(null);
  const box = useRef<HTMLDivElement>(null);

  const look = async (): Promise<number | undefined> => {
    await lines.refresh();
    await search?.goOn(lines.settled);
    if (lines.error !== null) return AGAIN_MS;
    return isLive ? LOOK_MS : undefined;
  };
  // One look more after the end, for the last lines.
  useEvery(look, `${stream} ${isLive}`);
  useEffect(() => () => search?.end(), [search]);
  useEffect(() => void search?.goOn(lines.settled), [search, lines.isKnown]);
  const find = (wanted: Wanted | null): void => {
    setSearch(wanted ? new LogSearch(wanted, searchOf(group, stream), update) : null);
    setFollows(false);
  };
  const goTo = (number: number | undefined): void => {
    if (number === undefined) return;
    setFollows(false);
    setMarked(number);
  };
  const press = (event: KeyboardEvent): void => {
    if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
    const isOnLines = !(event.target instanceof HTMLButtonElement);
    if (event.key === "/") document.getElementById("log-search")?.focus();
    else if (event.key === "n") goTo(search?.after((marked ?? -1) + 1));
    else if (event.key === "N") goTo(search?.before(marked ?? 0));
    else if (event.key === "f") setFollows(!follows);
    else if (event.key === "j") goTo(Math.min((marked ?? lines.firstKept - 1) + 1, lines.count - 1));
    else if (event.key === "k") goTo(Math.max((marked ?? lines.count) - 1, lines.firstKept));
    else if (event.key === "Enter" && isOnLines && marked !== null) setOpen(marked);
    else return;
    event.preventDefault();
  };

  return (
    <section class="log" aria-label="Log" onKeyDown={press}>
      <div class="toolbar">
        <SearchBar search={search} marked={marked} onFind={find} onGo={goTo} />
        <label>
          <input type="checkbox" checked={follows} onChange={(event) => setFollows(event.currentTarget.checked)} /> Follow
        </label>
        <span class="count">{lines.count.toLocaleString("en")} lines</span>
      </div>
      {lines.error !== null && <Failure error={lines.error} />}
      {lines.isKnown && !lines.count && <p>{isLive ? "The instance has not written anything yet." : "The log is empty."}</p>}
      <Lines
        box={box}
        lines={lines}
        search={search}
        marked={marked}
        follows={follows}
        onFollow={setFollows}
        onMark={goTo}
        onOpen={setOpen}
      />
      {open !== null && (
        <Whole key={open} group={group} stream={stream} number={open} onClose={() => setOpen(null)} />
      )}
    </section>
  );
}

interface SearchBarProps {
  search: LogSearch | null;
  marked: number | null;
  onFind: (wanted: Wanted | null) => void;
  onGo: (number: number | undefined) => void;
}

function SearchBar({ search, marked, onFind, onGo }: SearchBarProps) {
  const [wanted, setWanted] = useState<Wanted>({ text: "", isRegex: false, ignoreCase: true });
  const timer = useRef(0);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const change = (next: Wanted): void => {
    setWanted(next);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => onFind(next.text ? next : null), TYPING_MS);
  };
  const press = (event: KeyboardEvent): void => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    onGo(event.shiftKey ? search?.before(marked ?? 0) : search?.after((marked ?? -1) + 1));
  };
  return (
    <>
      <input
        id="log-search"
        type="search"
        aria-label="Search the log"
        placeholder="Search the log"
        maxLength={1000}
        value={wanted.text}
        onInput={(event) => change({ ...wanted, text: event.currentTarget.value })}
        onKeyDown={press}
      />
      <button
        type="button"
        title="Match upper and lower case"
        aria-label="Match upper and lower case"
        aria-pressed={!wanted.ignoreCase}
        onClick={() => change({ ...wanted, ignoreCase: !wanted.ignoreCase })}
      >
        Aa
      </button>
      <button
        type="button"
        title="Regular expression"
        aria-label="Regular expression"
        aria-pressed={wanted.isRegex}
        onClick={() => change({ ...wanted, isRegex: !wanted.isRegex })}
      >
        .*
      </button>
      <button type="button" disabled={!search?.lines.length} onClick={() => onGo(search?.before(marked ?? 0))}>
        Previous
      </button>
      <button type="button" disabled={!search?.lines.length} onClick={() => onGo(search?.after((marked ?? -1) + 1))}>
        Next
      </button>
      <span role="status">{search ? found(search, marked) : ""}</span>
      {search?.error !== null && search?.error !== undefined && <Failure error={search.error} />}
    </>
  );
}

function found(search: LogSearch, marked: number | null): string {
  if (search.tookTooLong) return `${search.lines.length} found; the expression takes too long for the rest`;
  if (search.error !== null) return "";
  if (search.isRunning && !search.lines.length) return "Searching …";
  const total = search.hasMore ? `${FOUND_MAX.toLocaleString("en")} or more` : search.lines.length.toLocaleString("en");
  const position = marked === null ? 0 : search.position(marked);
  return `${position ? `${position} of ` : ""}${total} ${total === "1" ? "line" : "lines"}`;
}

interface LinesProps {
  box: { current: HTMLDivElement | null };
  lines: LogLines;
  search: LogSearch | null;
  marked: number | null;
  follows: boolean;
  onFollow: (follows: boolean) => void;
  onMark: (number: number) => void;
  onOpen: (number: number) => void;
}

function Lines({ box, lines, search, marked, follows, onFollow, onMark, onOpen }: LinesProps) {
  const [top, setTop] = useState(0);
  const height = useHeight(box);
  const [begin, setBegin] = useState(0);
  const count = Math.min(WINDOW_LINES, Math.max(0, lines.count - begin));
  const first = begin + Math.max(0, Math.floor(top / LINE_PX) - OVERSCAN);
  const last = Math.min(begin + count, begin + Math.ceil((top + height) / LINE_PX) + OVERSCAN);

  useEffect(() => {
    if (last > first) lines.want(first, last - 1);
  }, [lines, first, last, lines.count]);
  useLayoutEffect(() => {
    if (!follows || !box.current) return;
    setBegin(windowOf(lines.count - 1));
    box.current.scrollTop = box.current.scrollHeight;
  }, [follows, lines.count, begin]);
  useLayoutEffect(() => {
    if (marked === null || marked >= lines.count || !box.current) return;
    const window = windowOf(marked);
    setBegin(window);
    const place = (marked - window) * LINE_PX;
    if (window === begin && place >= box.current.scrollTop && place < box.current.scrollTop + height - LINE_PX) return;
    box.current.scrollTop = place - height / 3;
  }, [marked, begin, lines.count > (marked ?? 0)]);

  const scroll = (): void => {
    const element = box.current;
    if (!element) return;
    setTop(element.scrollTop);
    const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - LINE_PX;
    if (follows && !isAtEnd) onFollow(false);
  };
  const numbers = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  return (
    <>
      {begin > 0 && (
        <button type="button" onClick={() => setBegin(begin - WINDOW_LINES)}>
          Earlier lines
        </button>
      )}
      {/* A region that scrolls has to be in the order of TAB, so that keys can scroll it. */}
      <div class="lines" ref={box} tabIndex={0} role="region" aria-label="Lines of the log" onScroll={scroll}>
        <div class="sheet" style={{ height: `${count * LINE_PX}px` }}>
          {numbers.map((number, place) => (
            // An element for each place in sight, whose text changes: new elements would make scrolling slow.
            <Line
              key={place}
              number={number}
              line={lines.line(number)}
              top={(number - begin) * LINE_PX}
              isMarked={number === marked}
              isFound={search?.has(number) ?? false}
              words={search?.wanted ?? null}
              onMark={onMark}
              onOpen={onOpen}
            />
          ))}
        </div>
      </div>
      {begin + count < lines.count && (
        <button type="button" onClick={() => setBegin(begin + WINDOW_LINES)}>
          Later lines
        </button>
      )}
    </>
  );
}

function useHeight(box: { current: HTMLDivElement | null }): number {
  const [height, setHeight] = useState(400);
  useEffect(() => {
    if (!box.current) return undefined;
    const observer = new ResizeObserver(() => setHeight(box.current?.clientHeight ?? 400));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return height;
}

function windowOf(number: number): number {
  return Math.floor(Math.max(0, number) / WINDOW_LINES) * WINDOW_LINES;
}

interface LineProps {
  number: number;
  line: LogLine | undefined;
  top: number;
  isMarked: boolean;
  isFound: boolean;
  words: Wanted | null;
  onMark: (number: number) => void;
  onOpen: (number: number) => void;
}

function Line({ number, line, top, isMarked, isFound, words, onMark, onOpen }: LineProps) {
  const classes = ["line", isMarked ? "marked" : "", isFound ? "found" : "", line?.IsState ? "state" : ""];
  return (
    <div class={classes.filter(Boolean).join(" ")} style={{ transform: `translateY(${top}px)` }}>
      <a
        href={`#L${number + 1}`}
        tabIndex={-1}
        aria-label={`Line ${number + 1}`}
        title={line?.Time ? time(line.Time) : ""}
        onClick={(event) => {
          event.preventDefault();
          onMark(number);
        }}
      >
        {number + 1}
      </a>
      <span onDblClick={() => onOpen(number)}>{line && <Message line={line} words={isFound ? words : null} />}</span>
      {line && (line.Bytes > LINE_BYTES || line.Message.length > SHOWN_CHARS) && (
        <button type="button" tabIndex={-1} class="more" onClick={() => onOpen(number)}>
          … the whole line
        </button>
      )}
    </div>
  );
}

function Message({ line, words }: { line: LogLine; words: Wanted | null }) {
  const { text } = cut(line.Message, SHOWN_CHARS);
  return (
    <>
      {pieces(text).map(({ text: part, classes }, index) => (
        <span key={index} class={classes || undefined}>
          {highlighted(shown(part, { lines: false }), words)}
        </span>
      ))}
    </>
  );
}

/** The text with the searched words marked. The expressions of users run in a process of the service, never here. */
function highlighted(text: string, words: Wanted | null) {
  if (!words || words.isRegex) return text;
  const [haystack, needle] = words.ignoreCase ? [text.toLowerCase(), words.text.toLowerCase()] : [text, words.text];
  const at = haystack.length === text.length ? haystack.indexOf(needle) : -1;
  if (at < 0) return text;
  return (
    <>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + needle.length)}</mark>
      {text.slice(at + needle.length)}
    </>
  );
}

interface WholeProps {
  group: string;
  stream: string;
  number: number;
  onClose: () => void;
}

/** One line in full, broken to the width of the page. */
function Whole({ group, stream, number, onClose }: WholeProps) {
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    wholeLine(group, stream, number).then(setText, setError);
  }, []);
  return (
    <div class="whole">
      <p>
        <strong>Line {number + 1}</strong>{" "}
        {text !== null && <Copy text={plain(text)} label="Copy the line" />}{" "}
        <button type="button" onClick={onClose}>
          Close
        </button>
      </p>
      {error !== null && <Failure error={error} />}
      {text !== null && (
        <pre>
          <Text value={plain(text)} max={WHOLE_CHARS} lines />
        </pre>
      )}
    </div>
  );
}

/** The line in the fragment of the address, e.g. `#L123`; as numbers begin at 0, that is 122. */
function useMarked(): [number | null, (number: number) => void] {
  const [marked, setMarked] = useState(inAddress);
  useEffect(() => {
    const change = (): void => setMarked(inAddress());
    window.addEventListener("hashchange", change);
    return () => window.removeEventListener("hashchange", change);
  }, []);
  const mark = (number: number): void => {
    // Without an entry in the history for each match of a search.
    window.history.replaceState(window.history.state, "", `#L${number + 1}`);
    setMarked(number);
  };
  return [marked, mark];
}

function inAddress(): number | null {
  const match = /^#L(\d{1,12})$/.exec(window.location.hash);
  return match && Number(match[1]) > 0 ? Number(match[1]) - 1 : null;
}
