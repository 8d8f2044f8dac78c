import { Unbuilt } from "../parts/unbuilt";

export default function Endpoint() {
  return <Unbuilt title="Endpoint" />;
}
