/** The inside of an archive in S3: its members, and the text or image in one of them. */

import { useEffect, useState } from "preact/hooks";

import { listMembers, MEMBER_MAX_BYTES, readMember, type ArchiveMember, type MemberPage } from "../archive_members";
import { useLoaded } from "../loaded";
import { bytes as sizeText, time } from "../numbers";
import { IMAGE_MAX_BYTES, imageType, PREVIEW_BYTES } from "../preview";
import { saveFile } from "../saved_file";
import { cutMiddle, shown } from "../shown_text";
import { Failure } from "./failure";
import { Preview } from "./preview";

interface ArchiveProps {
  bucket: string;
  objectKey: string;
}

export function Archive({ bucket, objectKey }: ArchiveProps) {
  const [pages, setPages] = useState<MemberPage[]>([]);
  const [isLoading, setLoading] = useState(true);
  const [error, setError] = useState<unknown>();
  const [chosen, setChosen] = useState<ArchiveMember>();
  const last = pages[pages.length - 1];
  const load = async (token: string | undefined, signal?: AbortSignal): Promise<void> => {
    setLoading(true);
    try {
      const page = await listMembers(bucket, objectKey, token, signal ? { signal } : {});
      setPages((before) => (token ? [...before, page] : [page]));
      setError(undefined);
    } catch (reason) {
      if (signal?.aborted) return;
      setError(reason);
    }
    setLoading(false);
  };
  useEffect(() => {
    const controller = new AbortController();
    setPages([]);
    setChosen(undefined);
    void load(undefined, controller.signal);
    return () => controller.abort();
  }, [bucket, objectKey]);
  const members = pages.flatMap((page) => page.Members);
  return (
    <section class="archive" aria-label={`In the archive ${shown(objectKey)}`} aria-busy={isLoading}>
      {error !== undefined && <Failure error={error} retry={() => void load(last?.NextToken)} />}
      {members.length > 0 && <Members members={members} chosen={chosen} onChoose={setChosen} />}
      {last && !members.length && <p class="quiet">The archive is empty.</p>}
      {last && !last.Complete && (
        <p class="reason">
          The list ends here: {last.Damage ? shown(last.Damage) : "the archive takes too long to read."}
        </p>
      )}
      {last?.NextToken && (
        <button type="button" disabled={isLoading} onClick={() => void load(last.NextToken)}>
          More members
        </button>
      )}
      {isLoading && <p role="status">Reading the archive …</p>}
      {chosen && last && (
        <Member key={chosen.Index} bucket={bucket} objectKey={objectKey} etag={last.ETag} member={chosen} />
      )}
    </section>
  );
}

interface MembersProps {
  members: readonly ArchiveMember[];
  chosen: ArchiveMember | undefined;
  onChoose: (member: ArchiveMember) => void;
}

function Members({ members, chosen, onChoose }: MembersProps) {
  return (
    <div class="wide listed" tabIndex={0} role="region" aria-label="Members">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Member</th>
            <th scope="col" class="numeric">
              Size
            </th>
            <th scope="col">Changed</th>
          </tr>
        </thead>
        <tbody>
          {members.map((member) => (
            <tr key={member.Index}>
              <td>
                {member.Type === "File" ? (
                  <button
                    type="button"
                    class="as-link"
                    aria-pressed={chosen?.Index === member.Index}
                    title={shown(member.Name)}
                    onClick={() => onChoose(member)}
                  >
                    {cutMiddle(shown(member.Name), 120)}
                  </button>
                ) : (
                  <Other member={member} />
                )}
              </td>
              <td class="numeric">{member.Type === "File" ? sizeText(member.SizeBytes) : ""}</td>
              <td>{member.ModifiedTime === undefined ? "" : time(member.ModifiedTime)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Other({ member }: { member: ArchiveMember }) {
  const kinds = { Directory: "folder", SymbolicLink: "link to", HardLink: "hard link to", Other: "neither file nor folder" };
  return (
    <>
      {cutMiddle(shown(member.Name), 120)}{" "}
      <span class="quiet">
        ({kinds[member.Type as keyof typeof kinds]}
        {member.Target ? ` ${cutMiddle(shown(member.Target), 120)}` : ""})
      </span>
    </>
  );
}

interface MemberProps extends ArchiveProps {
  etag: string;
  member: ArchiveMember;
}

function Member({ bucket, objectKey, etag, member }: MemberProps) {
  const [error, setError] = useState<unknown>();
  const [isSaving, setSaving] = useState(false);
  const isImage = imageType(member.Name) !== undefined && member.SizeBytes <= IMAGE_MAX_BYTES;
  const begin = useLoaded(`${etag} ${member.Index}`, (signal) =>
    readMember(bucket, objectKey, etag, member, isImage ? IMAGE_MAX_BYTES : PREVIEW_BYTES, { signal }),
  );
  const save = async (): Promise<void> => {
    setSaving(true);
    setError(undefined);
    try {
      saveFile(member.Name, await readMember(bucket, objectKey, etag, member, MEMBER_MAX_BYTES));
    } catch (reason) {
      setError(reason);
    }
    setSaving(false);
  };
  const isLarge = member.SizeBytes > MEMBER_MAX_BYTES;
  return (
    <section aria-label={shown(member.Name)}>
      <h3>{cutMiddle(shown(member.Name), 200)}</h3>
      <p>
        <button type="button" disabled={isSaving || isLarge} onClick={() => void save()}>
          Download this member
        </button>{" "}
        {isLarge && <span class="quiet">It has more than {sizeText(MEMBER_MAX_BYTES)}: download the archive.</span>}
        {isSaving && <span role="status">Reading …</span>}
      </p>
      {error !== undefined && <Failure error={error} />}
      {begin.error !== undefined && <Failure error={begin.error} retry={begin.reload} />}
      {begin.value && <Preview name={member.Name} bytes={begin.value} size={member.SizeBytes} />}
    </section>
  );
}
