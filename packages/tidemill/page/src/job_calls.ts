/** Requests about jobs. */

import { KINDS, type Kind } from "./job_kinds";
import type { Request } from "./job_request";
import type { JobRow } from "./job_rows";
import type { FetchFound, FetchLines } from "./log_lines";
import { call } from "./service";

export interface Waiting {
  Name: string;
  Place: number;
}

export interface JobPage {
  Jobs: JobRow[];
  Queue: Waiting[];
  NextToken?: string;
}

export interface Phase {
  Status: string;
  StartTime: number;
  EndTime?: number;
  Message: string;
}

export interface JobDescription {
  Job: JobRow;
  /** JSON. */
  Request: string;
  Queue: Waiting[];
  LogGroup?: string;
  LogStreams?: string[];
  Phases?: Phase[];
  ModelArtifacts?: string;
  /** JSON: what is known of the run, e.g. its environment. */
  Record?: string;
}

export interface PageOptions {
  ModifiedAfter?: number;
  StatusEquals?: string;
  MaxResults?: number;
  NextToken?: string | undefined;
}

export function listJobs(kind: Kind, options: PageOptions, signal: AbortSignal): Promise<JobPage> {
  return call<JobPage>("tidemill", "ListJobs", { Kind: kind, ...options }, { signal });
}

export function describeJob(kind: Kind, name: string, signal: AbortSignal): Promise<JobDescription> {
  return call<JobDescription>("tidemill", "DescribeJob", { Kind: kind, Name: name }, { signal });
}

export async function stopJob(kind: Kind, name: string): Promise<void> {
  await call("sagemaker", `Stop${KINDS[kind].resource}`, { [`${KINDS[kind].resource}Name`]: name });
}

export async function deleteJob(kind: Kind, name: string): Promise<void> {
  await call("sagemaker", `Delete${KINDS[kind].resource}`, { [`${KINDS[kind].resource}Name`]: name });
}

export async function createJob(kind: Kind, request: Request): Promise<void> {
  await call("sagemaker", `Create${KINDS[kind].resource}`, request);
}

/** Lines have at most so many bytes of their messages in lists. */
export const LINE_BYTES = 4096;

export function linesOf(group: string, stream: string, signal: AbortSignal): FetchLines {
  return (first, limit) => {
    const range = { FirstLine: first, MaxLines: limit, MaxBytes: LINE_BYTES };
    return call("tidemill", "GetLogLines", { LogGroup: group, LogStream: stream, ...range }, { signal });
  };
}

/** The whole of one line, of which lists have only the begin. */
export async function wholeLine(group: string, stream: string, number: number): Promise<string> {
  const input = { LogGroup: group, LogStream: stream, FirstLine: number, MaxLines: 1, MaxBytes: 1_048_576 };
  const { Lines } = await call<{ Lines: { Message: string }[] }>("tidemill", "GetLogLines", input);
  return Lines[0]?.Message ?? "";
}

export function searchOf(group: string, stream: string): FetchFound {
  return (wanted, first, limit, signal) => {
    const input = {
      LogGroup: group,
      LogStream: stream,
      Text: wanted.text,
      IsRegex: wanted.isRegex,
      IgnoreCase: wanted.ignoreCase,
      FirstLine: first,
      MaxLines: limit,
    };
    return call("tidemill", "SearchLogLines", input, { signal });
  };
}
