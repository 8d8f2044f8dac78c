/** Where a model version comes from, and what is made of it. */

import { nameInArn, pathOfArn } from "../arn";
import { useLoaded } from "../loaded";
import { rowsUpTo } from "../row_pages";
import { jobOfArchive } from "../objects";
import { call, isRefusal } from "../service";
import { shown } from "../shown_text";
import { Failure } from "./failure";
import { Link } from "./link";
import { PlainTable } from "./plain_table";

interface Association {
  SourceArn: string;
  SourceName?: string;
  SourceType?: string;
  DestinationArn: string;
  DestinationName?: string;
  DestinationType?: string;
  AssociationType?: string;
}

interface Artifact {
  ArtifactArn: string;
  ArtifactName?: string;
  ArtifactType?: string;
}

interface Training {
  TrainingJobArn: string;
  ModelArtifacts?: { S3ModelArtifacts?: string };
}

interface Relation {
  how: string;
  arn: string;
  name: string;
  type: string;
}

const MOST = 100;

export function Lineage({ arn, archive }: { arn: string; archive: string | undefined }) {
  const { value, error } = useLoaded(`${arn} ${archive}`, async (signal) => {
    const [training, ...related] = await Promise.all([
      trainingOf(archive, signal),
      ...[archive, arn].filter((uri) => uri !== undefined).map((uri) => relationsOf(uri, signal)),
    ]);
    const trained: Relation[] = training ? [{ how: "trained by", arn: training, name: nameInArn(training), type: "training job" }] : [];
    return [...trained, ...related.flat()];
  });
  return (
    <>
      <h2>Lineage</h2>
      {error !== undefined && <Failure error={error} />}
      {value && !value.length && <p class="quiet">Nothing is known to be connected with it.</p>}
      {value && value.length > 0 && (
        <PlainTable label="Lineage" titles={["How", "What", "Type"]}>
          {value.map((each) => (
            <tr key={`${each.how} ${each.arn}`}>
              <td>{shown(each.how)}</td>
              <td>
                <Resource {...each} />
              </td>
              <td>{shown(each.type)}</td>
            </tr>
          ))}
        </PlainTable>
      )}
    </>
  );
}

function Resource({ arn, name }: Relation) {
  const path = pathOfArn(arn);
  return path ? <Link to={path}>{shown(name)}</Link> : <>{shown(name)}</>;
}

/** Return the ARN of the training job that wrote an archive. */
async function trainingOf(archive: string | undefined, signal: AbortSignal): Promise<string | undefined> {
  const TrainingJobName = jobOfArchive(archive);
  if (!TrainingJobName) return undefined;
  try {
    const job = await call<Training>("sagemaker", "DescribeTrainingJob", { TrainingJobName }, { signal });
    return job.ModelArtifacts?.S3ModelArtifacts === archive ? job.TrainingJobArn : undefined;
  } catch (error) {
    // It was deleted, or this key may not see it.
    if (isRefusal(error)) return undefined;
    throw error;
  }
}

/** Return what is associated with the artifacts that have an address: of the model's data, or of the version itself. */
async function relationsOf(SourceUri: string, signal: AbortSignal): Promise<Relation[]> {
  const artifacts = await rowsUpTo<Artifact>("ListArtifacts", "ArtifactSummaries", { SourceUri }, MOST, signal);
  const related = artifacts.rows.map(async ({ ArtifactArn, ArtifactName, ArtifactType }) => {
    const [sources, users] = await Promise.all([
      associations({ DestinationArn: ArtifactArn }, signal),
      associations({ SourceArn: ArtifactArn }, signal),
    ]);
    const itself = { how: "recorded as", arn: ArtifactArn, name: ArtifactName ?? nameInArn(ArtifactArn), type: ArtifactType ?? "" };
    return [itself, ...sources.map(sourceOf), ...users.map(userOf)];
  });
  return (await Promise.all(related)).flat();
}

async function associations(input: object, signal: AbortSignal): Promise<Association[]> {
  return (await rowsUpTo<Association>("ListAssociations", "AssociationSummaries", input, MOST, signal)).rows;
}

function sourceOf({ SourceArn: arn, SourceName, SourceType, AssociationType }: Association): Relation {
  return { how: `from (${AssociationType ?? "associated"})`, arn, name: SourceName ?? nameInArn(arn), type: SourceType ?? "" };
}

function userOf({ DestinationArn: arn, DestinationName, DestinationType, AssociationType }: Association): Relation {
  return { how: `to (${AssociationType ?? "associated"})`, arn, name: DestinationName ?? nameInArn(arn), type: DestinationType ?? "" };
}
