import { Unbuilt } from "../parts/unbuilt";

export default function Tuning() {
  return <Unbuilt title="Tuning" />;
}
