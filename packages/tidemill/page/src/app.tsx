/** The frame of all views: navigation, the session, and the view of the current place. */

import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { entryName, usePlace } from "./location";
import { Boundary } from "./parts/boundary";
import { Failure } from "./parts/failure";
import { Link } from "./parts/link";
import { SignedOut } from "./parts/signed_out";
import { findRoute, ROUTES, type Found, type ViewProps } from "./routes";
import { useKeptScroll } from "./scroll_memory";
import { currentSession, endSession, onSessionChange, type Session } from "./service";
import { shown } from "./shown_text";

export function App() {
  const [session, setSession] = useState(currentSession);
  useEffect(() => onSessionChange(() => setSession(currentSession())), []);
  if (session === null) return <SignedOut signedIn={setSession} />;
  return <Frame key={`${session.user} ${session.expires}`} session={session} />;
}

function Frame({ session }: { session: Session }) {
  const place = usePlace();
  const found = findRoute(place.path || "jobs");
  const section = (place.path || "jobs").split("/")[0];
  useEffect(() => {
    const names = found ? Object.values(found.params) : [];
    document.title = [...names.slice(-1).map((name) => shown(name)), found?.route.title, "tidemill"]
      .filter(Boolean)
      .join(" · ");
  }, [place]);
  useKeptScroll(entryName());
  const shownPlace = useRef(place);
  useEffect(() => {
    // Screen readers and the keyboard go on at the new view, not behind the link that led to it, or that is gone.
    const isLost = shownPlace.current !== place && document.activeElement === document.body;
    if (isLost || shownPlace.current.path !== place.path) document.getElementById("content")?.focus({ preventScroll: true });
    shownPlace.current = place;
  }, [place]);
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header class="top">
        <Link to={["jobs"]} class="brand">
          tidemill
        </Link>
        <nav aria-label="Views">
          {ROUTES.filter((route) => route.menu).map((route) => (
            <Link key={route.path} to={[route.path]} aria-current={route.path === section ? "page" : undefined}>
              {route.menu}
            </Link>
          ))}
        </nav>
        <span class="session">
          {session.readOnly && <span class="badge">read-only</span>}
          <span title={shown(session.user)}>{shown(session.user.slice(session.user.lastIndexOf("/") + 1))}</span>
          <button type="button" onClick={() => void endSession().catch(() => undefined)}>
            Sign out
          </button>
        </span>
      </header>
      <main id="content" tabIndex={-1}>
        {found ? <View key={found.route.path} found={found} query={place.query} /> : <Nowhere />}
      </main>
    </>
  );
}

/** The view of a route, loaded when it is shown first. */
function View({ found, query }: { found: Found; query: URLSearchParams }) {
  const [loaded, setLoaded] = useState<{ view: ComponentType<ViewProps> } | null>(null);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    found.route.load().then(
      (module) => setLoaded({ view: module.default }),
      // A newer service has other files.
      () => setError(new Error("This view could not be loaded. Reload the page.")),
    );
  }, []);
  if (error) return <Failure error={error} retry={() => window.location.reload()} />;
  if (!loaded) return null;
  const Loaded = loaded.view;
  return (
    <Boundary key={JSON.stringify(found.params)}>
      <Loaded params={found.params} query={query} />
    </Boundary>
  );
}

function Nowhere() {
  return (
    <>
      <h1>There is no such view</h1>
      <p>
        <Link to={["jobs"]}>Go to the jobs</Link>
      </p>
    </>
  );
}
