/** Keeps the rows of jobs up to date: loads all of them in pages, and then what has changed. */

import type { Changed } from "./changes";
import { listJobs } from "./job_calls";
import { KIND_NAMES, STORED, type Kind } from "./job_kinds";
import { jobId, type JobRows } from "./job_rows";
import { isRefusal } from "./service";

const PAGE = 500;
const RELOADED_MAX = 1000;
/** Rows that are loaded of each kind. */
export const ROWS_MAX = 20_000;
/** A job is stored a little after its time of creation, so another one may be later and known already. */
const OVERLAP_S = 10;

export const JOB_INTERESTS = KIND_NAMES.map((kind) => ({ kind: STORED[kind] }));

export class JobFeed {
  isLoading = true;
  /** Whether there are more jobs than are loaded. */
  isCut = false;
  error: unknown = null;
  private readonly whole = new Set<Kind>();
  /** What is to be loaded: names that have changed, by kind. */
  private readonly waiting = new Map<Kind, Set<string>>();
  private isBusy = false;
  private looks = 0;

  constructor(
    private readonly jobs: JobRows,
    private readonly changed: () => void,
    private readonly signal: AbortSignal,
  ) {}

  /** Load what has changed; null is everything. */
  hear(changed: Changed): void {
    for (const kind of KIND_NAMES) {
      // Which jobs are gone meanwhile, only a list of all says; of very many, a view can do without.
      if (changed === null && this.jobs.namesOf(kind).size <= RELOADED_MAX) this.whole.delete(kind);
      const names = changed === null ? [] : changed.get(STORED[kind]);
      if (names) this.waiting.set(kind, new Set([...(this.waiting.get(kind) ?? []), ...names]));
    }
    void this.work();
  }

  /** Load the jobs that run, whose metrics and places in the queue change without a change of the job. */
  async lookAtLive(): Promise<void> {
    // What could not be loaded is tried again; and the first begin does not depend on the stream of changes.
    this.looks += 1;
    if (this.isLoading && !this.isBusy && this.looks > 1) return this.hear(null);
    if (this.waiting.size) return this.work();
    let failure: unknown = null;
    for (const kind of KIND_NAMES) {
      if (!this.whole.has(kind) || !this.jobs.count("InProgress", [kind])) continue;
      const error = await this.attempt(async () => {
        const page = await listJobs(kind, { StatusEquals: "InProgress", MaxResults: PAGE }, this.signal);
        this.jobs.merge(page.Jobs);
        this.jobs.queue(kind, page.Queue);
      });
      failure ??= error;
    }
    this.error = failure;
    this.changed();
  }

  private async work(): Promise<void> {
    if (this.isBusy) return;
    this.isBusy = true;
    let isLater = false;
    while (this.waiting.size && !isLater && !this.signal.aborted) {
      const work = [...this.waiting];
      this.waiting.clear();
      let failure: unknown = null;
      const attempts = work.map(async ([kind, names]) => {
        const error = await this.attempt(() => (this.whole.has(kind) ? this.update(kind, names) : this.load(kind)));
        failure ??= error;
        if (error === null || isRefusal(error)) return;
        this.waiting.set(kind, new Set([...(this.waiting.get(kind) ?? []), ...names]));
        isLater = true;
      });
      await Promise.all(attempts);
      this.error = failure;
      this.isLoading = false;
      this.changed();
    }
    this.isBusy = false;
  }

  /** Return why it failed; null if it did not, or if nobody needs it any more. */
  private async attempt(act: () => Promise<void>): Promise<unknown> {
    try {
      await act();
      return null;
    } catch (error) {
      return this.signal.aborted ? null : error;
    }
  }

  private async load(kind: Kind): Promise<void> {
    const before = this.jobs.namesOf(kind);
    let token: string | undefined;
    let count = 0;
    do {
      const page = await listJobs(kind, { MaxResults: PAGE, NextToken: token }, this.signal);
      for (const job of page.Jobs) before.delete(job.Name);
      this.jobs.merge(page.Jobs);
      this.jobs.queue(kind, page.Queue);
      this.changed();
      count += page.Jobs.length;
      token = page.NextToken;
    } while (token && count < ROWS_MAX);
    if (!token) for (const name of before) this.jobs.remove(jobId(kind, name));
    this.isCut ||= token !== undefined;
    this.whole.add(kind);
  }

  private async update(kind: Kind, names: ReadonlySet<string>): Promise<void> {
    const since = Math.max(0, this.jobs.changed(kind) - OVERLAP_S);
    const found = new Set<string>();
    let token: string | undefined;
    do {
      const page = await listJobs(kind, { ModifiedAfter: since, MaxResults: PAGE, NextToken: token }, this.signal);
      this.jobs.merge(page.Jobs);
      this.jobs.queue(kind, page.Queue);
      for (const job of page.Jobs) found.add(job.Name);
      token = page.NextToken;
    } while (token);
    // A job that has changed is among those that were changed since, unless it is gone.
    for (const name of names) if (!found.has(name)) this.jobs.remove(jobId(kind, name));
  }
}
