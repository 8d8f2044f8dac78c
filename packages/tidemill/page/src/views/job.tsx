import { Unbuilt } from "../parts/unbuilt";

export default function Job() {
  return <Unbuilt title="Job" />;
}
