import type { ComponentChildren } from "preact";

import { shown } from "../shown_text";

/** Facts: a name and a value each. A name without a value is left out. */
export function Figures({ entries }: { entries: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="pairs">
      {entries
        .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{shown(name)}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
