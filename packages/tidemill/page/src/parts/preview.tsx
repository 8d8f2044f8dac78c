import { useEffect, useMemo, useState } from "preact/hooks";

import { bytes as sizeText } from "../numbers";
import { imageType, parseTable, prettyJson, previewKind } from "../preview";
import { shown } from "../shown_text";
import { Text } from "./text";

const TEXT_CHARS = 20_000;

interface PreviewProps {
  /** Name of the file; its end says what it may be. */
  name: string;
  /** The first bytes, or all. */
  bytes: Uint8Array;
  /** Size of the whole file. */
  size: number;
}

/** The content of a file: an image, a table, or text in text nodes. */
export function Preview({ name, bytes, size }: PreviewProps) {
  const kind = previewKind(name, bytes);
  const isCut = bytes.length < size;
  if (size === 0) return <p class="quiet">The file is empty.</p>;
  if (kind === "image") {
    return isCut ? <p>The image is too large to be shown.</p> : <Picture name={name} bytes={bytes} />;
  }
  if (kind === "none") return <p>The file is neither text nor an image. Download it to see what it has.</p>;
  return (
    <>
      {kind === "table" ? <Rows name={name} bytes={bytes} /> : <Lines bytes={bytes} isJson={kind === "json" && !isCut} />}
      {isCut && (
        <p class="quiet">
          These are the first {sizeText(bytes.length)} of {sizeText(size)}.
        </p>
      )}
    </>
  );
}

function Picture({ name, bytes }: { name: string; bytes: Uint8Array }) {
  const [address, setAddress] = useState("");
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    // In an element img, even a picture with scripts in it runs none and loads nothing.
    const made = URL.createObjectURL(new Blob([bytes as BlobPart], { type: imageType(name) ?? "" }));
    setAddress(made);
    setBroken(false);
    return () => URL.revokeObjectURL(made);
  }, [name, bytes]);
  if (isBroken) return <p>The browser cannot show this image.</p>;
  return address ? <img class="picture" src={address} alt={shown(name)} onError={() => setBroken(true)} /> : null;
}

function Lines({ bytes, isJson }: { bytes: Uint8Array; isJson: boolean }) {
  const text = useMemo(() => {
    const decoded = new TextDecoder().decode(bytes, { stream: true });
    return isJson ? prettyJson(decoded) : decoded;
  }, [bytes, isJson]);
  return (
    <pre class="content" tabIndex={0} role="region" aria-label="Content">
      <Text value={text} max={TEXT_CHARS} lines />
    </pre>
  );
}

function Rows({ name, bytes }: { name: string; bytes: Uint8Array }) {
  const table = useMemo(() => {
    const text = new TextDecoder().decode(bytes, { stream: true });
    return parseTable(text, name.toLowerCase().endsWith(".tsv") ? "\t" : ",");
  }, [name, bytes]);
  return (
    <>
      <div class="wide content" tabIndex={0} role="region" aria-label="Content">
        <table class="plain">
          <tbody>
            {table.rows.map((row, index) => (
              <tr key={index}>
                <th scope="row">{index + 1}</th>
                {row.map((cell, column) => (
                  <td key={column}>
                    <Text value={cell} max={200} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {table.isCut && <p class="quiet">There are more rows or columns.</p>}
    </>
  );
}
