import { Unbuilt } from "../parts/unbuilt";

export default function System() {
  return <Unbuilt title="System" />;
}
