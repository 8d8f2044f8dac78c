import { render } from "preact";

import { App } from "./app";
import { Failure } from "./parts/failure";
import { OtherSession } from "./parts/other_session";
import { isRefusal, ServiceError, startSession } from "./service";
import "./style.css";

/** Begin a session if `tidemill open` has sent its token; a fragment never reaches a server or its log. */
async function start(): Promise<void> {
  const root = document.getElementById("page");
  if (!root) throw new Error("index.html has no element #page");
  const token = new URLSearchParams(window.location.hash.slice(1)).get("token");
  if (!token) {
    render(<App />, root);
    return;
  }
  // Before anything else: neither the history nor a reload has the token again.
  window.history.replaceState(null, "", window.location.pathname + window.location.search);
  await signIn(root, token, false);
}

async function signIn(root: HTMLElement, token: string, replaces: boolean): Promise<void> {
  try {
    await startSession(token, { replaces });
  } catch (error) {
    if (error instanceof ServiceError && error.code === "OtherPageSession") {
      const replace = (): void => void signIn(root, token, true);
      render(<OtherSession reason={error.message} replace={replace} keep={() => render(<App />, root)} />, root);
    } else {
      // Of a token that the service has refused there is nothing more to get.
      const retry = (): void => (isRefusal(error) ? render(<App />, root) : void signIn(root, token, replaces));
      render(<Failure error={error} retry={retry} />, root);
    }
    return;
  }
  render(<App />, root);
}

void start();
