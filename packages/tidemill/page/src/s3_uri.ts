/** Objects that are named as `s3://BUCKET/KEY`. */

export interface ObjectPlace {
  bucket: string;
  key: string;
}

/** Return bucket and key, or undefined if the text names no object. */
export function objectOf(uri: string | undefined): ObjectPlace | undefined {
  const found = /^s3:\/\/([^/]+)\/(.+)$/s.exec(uri ?? "");
  return found ? { bucket: found[1]!, key: found[2]! } : undefined;
}

/** Return the path of the view of an object. */
export function pathOfObject({ bucket, key }: ObjectPlace): string[] {
  return ["data", bucket, ...key.split("/")];
}

/** Return the training job whose archive a URI can be: SageMaker writes it to `.../JOB/output/model.tar.gz`. */
export function jobOfArchive(uri: string | undefined): string | undefined {
  return /\/([A-Za-z0-9-]{1,63})\/output\/model\.tar\.gz$/.exec(uri ?? "")?.[1];
}
