import { Unbuilt } from "../parts/unbuilt";

export default function Data() {
  return <Unbuilt title="Data" />;
}
