/** Let the browser save bytes as a file. It is never opened, whatever it has. */
export function saveFile(path: string, bytes: Uint8Array): void {
  const address = URL.createObjectURL(new Blob([bytes as BlobPart], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = path.slice(path.lastIndexOf("/") + 1) || "member";
  link.click();
  // The browser has begun to save it when the next task runs.
  window.setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
