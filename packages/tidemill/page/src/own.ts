/** A member by a name that a user chose, which may be that of a member of every object, e.g. `constructor`. */
export function own<T>(values: Readonly<Record<string, T>> | undefined, name: string): T | undefined {
  return values && Object.hasOwn(values, name) ? values[name] : undefined;
}
