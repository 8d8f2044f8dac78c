import { useEffect, useRef, useState } from "preact/hooks";

import { bytes as sizeText } from "../numbers";
import { currentSession } from "../service";
import { shown } from "../shown_text";
import { uploadFile } from "../upload";
import { Failure } from "./failure";

interface UploadsProps {
  bucket: string;
  prefix: string;
  /** Called when files have been stored. */
  onStored: () => void;
}

interface Progress {
  name: string;
  size: number;
  stored: number;
  error?: unknown;
}

/** Files of this browser's machine become objects of a folder. */
export function Uploads({ bucket, prefix, onStored }: UploadsProps) {
  const [progress, setProgress] = useState<Progress[]>([]);
  const [isRunning, setRunning] = useState(false);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  if (currentSession()?.readOnly) return null;
  const upload = async (files: readonly File[]): Promise<void> => {
    const controller = new AbortController();
    running.current = controller;
    setRunning(true);
    setProgress(files.map((file) => ({ name: file.name, size: file.size, stored: 0 })));
    for (const [index, file] of files.entries()) {
      const change = (values: Partial<Progress>): void =>
        setProgress((all) => all.map((each, at) => (at === index ? { ...each, ...values } : each)));
      try {
        await uploadFile(bucket, prefix + file.name, file, (stored) => change({ stored }), controller.signal);
      } catch (error) {
        if (controller.signal.aborted) break;
        change({ error });
      }
    }
    setRunning(false);
    onStored();
  };
  return (
    <section aria-label="Upload">
      <p class="inline-form">
        <label>
          Upload files{" "}
          <input
            type="file"
            multiple
            disabled={isRunning}
            onChange={(event) => {
              const files = [...(event.currentTarget.files ?? [])];
              event.currentTarget.value = "";
              if (files.length) void upload(files);
            }}
          />
        </label>
        <span class="quiet">Objects of the same name are replaced.</span>
        {isRunning && (
          <button type="button" onClick={() => running.current?.abort()}>
            Stop
          </button>
        )}
      </p>
      <div role="status">
        <ul class="uploads">
          {progress.map((each) => (
            <li key={each.name}>
              {shown(each.name)}:{" "}
              {each.error === undefined && `${sizeText(each.stored)} of ${sizeText(each.size)} stored`}
              {each.error !== undefined && <Failure error={each.error} />}
            </li>
          ))}
        </ul>
      </div>
    </section>
  );
}
