import { useState } from "preact/hooks";

import { download } from "../service";
import type { Place } from "../objects";
import { shown } from "../shown_text";
import { Failure } from "./failure";

/** A button that downloads an object of S3. */
export function Download({ place, isNamed = false }: { place: Place; isNamed?: boolean }) {
  const [error, setError] = useState<unknown>();
  const save = (): void => {
    setError(undefined);
    download(place.bucket, place.key).catch(setError);
  };
  return (
    <>
      <button type="button" onClick={save} aria-label={isNamed ? `Download ${shown(place.key)}` : undefined}>
        Download
      </button>
      {error !== undefined && <Failure error={error} />}
    </>
  );
}
