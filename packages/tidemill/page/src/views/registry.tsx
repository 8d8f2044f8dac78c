import { Unbuilt } from "../parts/unbuilt";

export default function Registry() {
  return <Unbuilt title="Registry" />;
}
