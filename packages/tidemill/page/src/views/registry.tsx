/** The registry of models: groups, their versions, and one version. */

import { time } from "../numbers";
import { Failure } from "../parts/failure";
import { Link } from "../parts/link";
import { ModelVersion } from "../parts/model_version";
import { PlainTable } from "../parts/plain_table";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { rowsUpTo, useRows } from "../row_pages";
import type { ViewProps } from "../routes";
import { call } from "../service";
import { shown } from "../shown_text";

interface GroupSummary {
  ModelPackageGroupName: string;
  ModelPackageGroupDescription?: string;
  CreationTime: number;
}

interface PackageSummary {
  ModelPackageArn: string;
  ModelPackageName?: string;
  ModelPackageVersion?: number;
  ModelPackageDescription?: string;
  ModelApprovalStatus?: string;
  CreationTime: number;
}

export default function Registry({ params }: ViewProps) {
  const { group, version } = params;
  if (group && version) return <ModelVersion name={`${group}/${version}`} group={group} />;
  return group ? <OneGroup name={group} /> : <AllGroups />;
}

function AllGroups() {
  const { value, error, reload, more } = useRows(
    "groups",
    (limit, signal) => rowsUpTo<GroupSummary>("ListModelPackageGroups", "ModelPackageGroupSummaryList", NEWEST, limit, signal),
    { on: () => [{ kind: "model-package-group" }] },
  );
  return (
    <>
      <h1>Registry</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value && !value.rows.length && <p class="quiet">There are no groups of model packages.</p>}
      {value && value.rows.length > 0 && (
        <PlainTable label="Groups" titles={["Group", "Description", "Created"]}>
          {value.rows.map((each) => (
            <tr key={each.ModelPackageGroupName}>
              <th scope="row">
                <Link to={["registry", each.ModelPackageGroupName]}>{shown(each.ModelPackageGroupName)}</Link>
              </th>
              <td>
                <Text value={each.ModelPackageGroupDescription ?? ""} max={200} />
              </td>
              <td>{time(each.CreationTime)}</td>
            </tr>
          ))}
        </PlainTable>
      )}
      {value?.token && <More onMore={more} />}
      <Unversioned />
    </>
  );
}

/** Packages that belong to no group; most registries have none. */
function Unversioned() {
  const { value, more } = useRows(
    "unversioned",
    (limit, signal) => rowsUpTo<PackageSummary>("ListModelPackages", "ModelPackageSummaryList", NEWEST, limit, signal),
    { on: () => [{ kind: "model-package" }] },
  );
  if (!value?.rows.length) return null;
  return (
    <>
      <h2>Packages without a group</h2>
      <PlainTable label="Packages without a group" titles={["Package", "Description", "Created"]}>
        {value.rows.map((each) => (
          <tr key={each.ModelPackageArn}>
            <th scope="row">{shown(each.ModelPackageName ?? "")}</th>
            <td>
              <Text value={each.ModelPackageDescription ?? ""} max={200} />
            </td>
            <td>{time(each.CreationTime)}</td>
          </tr>
        ))}
      </PlainTable>
      {value.token && <More onMore={more} />}
    </>
  );
}

function OneGroup({ name }: { name: string }) {
  const { value, error, reload, more } = useRows(
    name,
    async (limit, signal) => {
      const group = await call<GroupSummary>("sagemaker", "DescribeModelPackageGroup", { ModelPackageGroupName: name }, { signal });
      const input = { ...NEWEST, ModelPackageGroupName: name };
      return { group, ...(await rowsUpTo<PackageSummary>("ListModelPackages", "ModelPackageSummaryList", input, limit, signal)) };
    },
    { on: () => [{ kind: "model-package" }] },
  );
  return (
    <>
      <p class="trail">
        <Link to={["registry"]}>Registry</Link>
      </p>
      <h1>{shown(name)}</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value?.group.ModelPackageGroupDescription && (
        <p>
          <Text value={value.group.ModelPackageGroupDescription} lines />
        </p>
      )}
      {value && !value.rows.length && <p class="quiet">The group has no versions.</p>}
      {value && value.rows.length > 0 && (
        <PlainTable label="Versions" titles={["Version", "Approval", "Description", "Created"]}>
          {value.rows.map((each) => (
            <tr key={each.ModelPackageArn}>
              <th scope="row">
                <Link to={["registry", name, String(each.ModelPackageVersion)]}>{`Version ${each.ModelPackageVersion}`}</Link>
              </th>
              <td>
                <State value={each.ModelApprovalStatus ?? ""} />
              </td>
              <td>
                <Text value={each.ModelPackageDescription ?? ""} max={200} />
              </td>
              <td>{time(each.CreationTime)}</td>
            </tr>
          ))}
        </PlainTable>
      )}
      {value?.token && <More onMore={more} />}
    </>
  );
}

const NEWEST = { SortBy: "CreationTime", SortOrder: "Descending" };

function More({ onMore }: { onMore: () => void }) {
  return (
    <button type="button" onClick={onMore}>
      Show more
    </button>
  );
}
