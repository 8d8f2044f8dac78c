import { Unbuilt } from "../parts/unbuilt";

export default function Pipelines() {
  return <Unbuilt title="Pipelines" />;
}
