import { useState } from "preact/hooks";

/** The rows of a table that one selects, by their keys. */
export function useSelection(): [ReadonlySet<string>, (keys: readonly string[], isSelected: boolean) => void, () => void] {
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const select = (keys: readonly string[], isSelected: boolean): void => {
    const next = new Set(selected);
    for (const key of keys) {
      if (isSelected) next.add(key);
      else next.delete(key);
    }
    setSelected(next);
  };
  return [selected, select, () => setSelected(new Set())];
}
