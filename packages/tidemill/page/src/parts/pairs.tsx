import type { ComponentChildren } from "preact";

import { shown } from "../shown_text";

/** Names and what belongs to them; a name without a value is left out. */
export function Pairs({ pairs }: { pairs: readonly (readonly [name: string, value: ComponentChildren])[] }) {
  return (
    <dl class="pairs">
      {pairs
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
