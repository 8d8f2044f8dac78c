/** The view of a route that has none yet. */
export function Unbuilt({ title }: { title: string }) {
  return (
    <>
      <h1>{title}</h1>
      <p>This view is not built yet.</p>
    </>
  );
}
