import { Unbuilt } from "../parts/unbuilt";

export default function Endpoints() {
  return <Unbuilt title="Endpoints" />;
}
