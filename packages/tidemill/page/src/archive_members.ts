/** The members of an archive in S3, which the service reads without unpacking it. */

import { call, type CallOptions } from "./service";

export interface ArchiveMember {
  Index: number;
  Name: string;
  Type: "File" | "Directory" | "SymbolicLink" | "HardLink" | "Other";
  SizeBytes: number;
  /** Seconds since the epoch. */
  ModifiedTime?: number;
  Target?: string;
}

export interface MemberPage {
  ETag: string;
  Members: ArchiveMember[];
  Complete: boolean;
  Damage?: string;
  NextToken?: string;
}

/** Most bytes of a member that are put together here; for more, the whole archive is downloaded. */
export const MEMBER_MAX_BYTES = 64 * 1024 * 1024;

const PIECE_BYTES = 2 * 1024 * 1024;

export function listMembers(bucket: string, key: string, token?: string, options?: CallOptions): Promise<MemberPage> {
  const input = { Bucket: bucket, Key: key, MaxResults: 200, ...(token ? { NextToken: token } : {}) };
  return call<MemberPage>("tidemill", "ListArchive", input, options);
}

/** The first bytes of a member, at most `max`. */
export async function readMember(
  bucket: string,
  key: string,
  etag: string,
  member: ArchiveMember,
  max: number,
  options: CallOptions = {},
): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  let offset = 0;
  while (offset < max) {
    const size = Math.min(PIECE_BYTES, max - offset);
    const input = { Bucket: bucket, Key: key, IfMatch: etag, Index: member.Index, Offset: offset, MaxBytes: size };
    const { Data } = await call<{ Data: string }>("tidemill", "ReadArchiveMember", input, options);
    const piece = Uint8Array.from(atob(Data), (character) => character.charCodeAt(0));
    pieces.push(piece);
    offset += piece.length;
    if (piece.length < size) break;
  }
  return joined(pieces, offset);
}

function joined(pieces: readonly Uint8Array[], size: number): Uint8Array {
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
