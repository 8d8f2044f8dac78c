/** Which values of several jobs differ. */

/** One row of a comparison: a name, and the value of each job; undefined if the job does not have it. */
export interface Row {
  name: string;
  values: readonly (string | undefined)[];
  differs: boolean;
}

/** Return a row for each name that any job has, in the order of the names. */
export function rowsOf(jobs: readonly Readonly<Record<string, string>>[]): Row[] {
  const names = [...new Set(jobs.flatMap((job) => Object.keys(job)))].sort(compareNames);
  return names.map((name) => {
    const values = jobs.map((job) => (Object.hasOwn(job, name) ? job[name] : undefined));
    return { name, values, differs: values.some((value) => value !== values[0]) };
  });
}

/**
 * Return hyperparameters as their script sees them: SDKs encode each as JSON, so that the text has quotes of its own.
 * Those that tell the container how to run the script begin with `sagemaker_`, and are left out.
 */
export function scriptParameters(given: Readonly<Record<string, string>> | undefined): Record<string, string> {
  const own = Object.entries(given ?? {}).filter(([name]) => !name.startsWith("sagemaker_"));
  return Object.fromEntries(own.map(([name, text]) => [name, decoded(text)]));
}

/** Return the text of a hyperparameter that is a JSON string, else the text itself. */
export function decoded(text: string): string {
  if (!text.startsWith('"')) return text;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? value : text;
  } catch {
    return text;
  }
}

function compareNames(a: string, b: string): number {
  return a.localeCompare(b, "en", { numeric: true });
}
