import { render } from "preact";

import { App } from "./app";
import { Failure } from "./parts/failure";
import { startSession } from "./service";
import "./style.css";

/** Begin a session if `tidemill open` has sent its token; a fragment never reaches a server or its log. */
async function start(): Promise<void> {
  const root = document.getElementById("page");
  if (!root) throw new Error("index.html has no element #page");
  const token = new URLSearchParams(window.location.hash.slice(1)).get("token");
  if (token) {
    // Before anything else: neither the history nor a reload has the token again.
    window.history.replaceState(null, "", window.location.pathname + window.location.search);
    try {
      await startSession(token);
    } catch (error) {
      render(<Failure error={error} />, root);
      return;
    }
  }
  render(<App />, root);
}

void start();
