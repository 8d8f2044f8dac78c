import type { ComponentChildren, PartialAnchorHTMLAttributes } from "preact";

import { go, href, type QueryValues } from "../location";

interface LinkProps extends Omit<PartialAnchorHTMLAttributes<HTMLAnchorElement>, "href" | "role"> {
  /** Segments of the path below `/_tidemill/`, not encoded. */
  to: readonly string[];
  query?: QueryValues;
  children: ComponentChildren;
}

/** A link inside the page. A click changes the address; with a modifier it stays the browser's own. */
export function Link({ to, query = {}, children, ...rest }: LinkProps) {
  const address = href(to, query);
  const follow = (event: MouseEvent): void => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(address);
  };
  return (
    <a {...rest} href={address} onClick={follow}>
      {children}
    </a>
  );
}
