import { Unbuilt } from "../parts/unbuilt";

export default function Jobs() {
  return <Unbuilt title="Jobs" />;
}
