import { go } from "../location";
import { shown } from "../shown_text";

interface OtherSessionProps {
  /** What the service said about the two users. */
  reason: string;
  replace: () => void;
  keep: () => void;
}

/** Asks before an address signs this browser in as somebody else: it may be an address that somebody else made. */
export function OtherSession({ reason, replace, keep }: OtherSessionProps) {
  return (
    <main class="signed-out">
      <h1>Sign in as another user?</h1>
      <p>{shown(reason)}</p>
      <p>Go on only if you asked for that with tidemill open yourself.</p>
      <div class="buttons">
        <button
          type="button"
          class="primary"
          onClick={() => {
            go(window.location.pathname, { replace: true });
            keep();
          }}
        >
          Stay signed in
        </button>
        <button type="button" onClick={replace}>
          Sign in as the other user
        </button>
      </div>
    </main>
  );
}
