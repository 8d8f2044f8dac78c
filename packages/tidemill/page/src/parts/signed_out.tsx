/** What a browser without a session sees. */
export function SignedOut() {
  return (
    <main class="signed-out">
      <h1>tidemill</h1>
      <p>
        This browser is not signed in. Run <code>tidemill open</code>; it opens the page for you.
      </p>
    </main>
  );
}
