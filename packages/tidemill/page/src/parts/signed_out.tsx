import { useState } from "preact/hooks";

import { createToken, startSession, type Session } from "../service";
import { Failure } from "./failure";

interface SignedOutProps {
  /** Called with the session that has begun. */
  signedIn: (session: Session) => void;
}

/** What a browser without a session sees: how to get one, and a form for somebody with a key. */
export function SignedOut({ signedIn }: SignedOutProps) {
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);

  const signIn = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const values = new FormData(form);
    const text = (name: string): string => String(values.get(name) ?? "").trim();
    setBusy(true);
    setError(null);
    try {
      const keys = { id: text("id"), secret: text("secret"), token: text("token") };
      const token = await createToken(keys, values.get("read-only") !== null);
      form.reset();
      signedIn(await startSession(token));
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  };

  return (
    <main class="signed-out">
      <h1>tidemill</h1>
      <p>
        This browser is not signed in. On the machine of the service, <code>tidemill open</code> opens this page for
        you. Elsewhere, sign in with an access key:
      </p>
      <form onSubmit={(event) => void signIn(event)}>
        <label>
          Access key ID
          <input name="id" required autocomplete="username" spellcheck={false} />
        </label>
        <label>
          Secret access key
          <input name="secret" type="password" required autocomplete="current-password" />
        </label>
        <label>
          Session token, for temporary keys
          <input name="token" type="password" autocomplete="off" />
        </label>
        <label class="check">
          <input name="read-only" type="checkbox" /> Only look, change nothing
        </label>
        <button class="primary" type="submit" disabled={busy}>
          Sign in
        </button>
      </form>
      <p class="quiet">
        The page signs one request with the key and then forgets it: the secret is neither sent nor stored. You see and
        do what the policy of your key allows.
      </p>
      {error !== null && <Failure error={error} />}
    </main>
  );
}
