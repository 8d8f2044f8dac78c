import type { ComponentChildren } from "preact";

/** Facts: a name and a value each. */
export function Figures({ entries }: { entries: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="pairs">
      {entries.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
