/** The body of a request to a model, made from a signature. */

import type { ModelSignature, SignatureTensor } from "./endpoint_calls";

const ELEMENTS_MAX = 4096;

/** Whether all inputs have examples along their first dimension, so that a request may have one example after the other. */
export function isBatched(signature: ModelSignature): boolean {
  return signature.Inputs.every((input) => input.Shape?.[0] === -1);
}

/** A value that fits an input, with zeros or empty texts, to be changed; empty if the shape is unknown or large. */
export function exampleOf(input: SignatureTensor, batched: boolean): string {
  if (!input.Shape) return "";
  const shape = (batched ? input.Shape.slice(1) : input.Shape).map((size) => (size < 0 ? 1 : size));
  if (shape.reduce((product, size) => product * size, 1) > ELEMENTS_MAX) return "";
  return JSON.stringify(nested(shape, input.Type === "string" ? "" : input.Type === "bool" ? false : 0));
}

function nested(shape: readonly number[], value: string | number | boolean): unknown {
  const [size, ...rest] = shape;
  if (size === undefined) return value;
  return Array.from({ length: size }, () => nested(rest, value));
}

/** What a field of an input has: JSON, or text as it is for an input of texts. */
export function valueOf(input: SignatureTensor, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    if (input.Type === "string") return text;
    throw new Error(`${input.Name} is no JSON: give a number, or a list such as [[0, 1], [2, 3]]`);
  }
}

/** The body of a predict request with one example, or with whole tensors if they are not batched. */
export function bodyOf(signature: ModelSignature, texts: Readonly<Record<string, string>>): string {
  const values = Object.fromEntries(signature.Inputs.map((input) => [input.Name, valueOf(input, texts[input.Name] ?? "")]));
  const name = signature.Name === "serving_default" ? {} : { signature_name: signature.Name };
  const content = isBatched(signature) ? { instances: [values] } : { inputs: values };
  return JSON.stringify({ ...name, ...content });
}

/** For example `float, any × 28 × 28`. */
export function tensorText(tensor: SignatureTensor): string {
  if (!tensor.Shape) return `${tensor.Type}, any shape`;
  if (tensor.Shape.length === 0) return `${tensor.Type}, one value`;
  return `${tensor.Type}, ${tensor.Shape.map((size) => (size < 0 ? "any" : size)).join(" × ")}`;
}
