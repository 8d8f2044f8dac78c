// A processing job, the registry and Search with AWS's SDK for JavaScript.
const sagemaker = require("@aws-sdk/client-sagemaker");
const s3 = require("@aws-sdk/client-s3");

const bucket = "sagemaker-us-west-2-000000000000";
const role = "arn:aws:iam::000000000000:role/SageMakerRole";
const image = "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3";
const base = "/opt/ml/processing";

async function main() {
  const files = new s3.S3Client({ forcePathStyle: true });
  const client = new sagemaker.SageMakerClient({});
  const code = `open("${base}/out/x.txt", "w").write("from a script")`;
  await files.send(new s3.PutObjectCommand({ Bucket: bucket, Key: "js/code/prepare.py", Body: code }));
  const name = `js-${Date.now()}`;
  const input = { S3Uri: `s3://${bucket}/js/code`, S3DataType: "S3Prefix", S3InputMode: "File" };
  const output = { S3Uri: `s3://${bucket}/js/out`, LocalPath: `${base}/out`, S3UploadMode: "EndOfJob" };
  await client.send(
    new sagemaker.CreateProcessingJobCommand({
      ProcessingJobName: name,
      RoleArn: role,
      AppSpecification: { ImageUri: image, ContainerEntrypoint: ["python3", `${base}/input/code/prepare.py`] },
      ProcessingInputs: [{ InputName: "code", S3Input: { ...input, LocalPath: `${base}/input/code` } }],
      ProcessingOutputConfig: { Outputs: [{ OutputName: "out", S3Output: output }] },
      ProcessingResources: { ClusterConfig: { InstanceCount: 1, InstanceType: "ml.m5.large", VolumeSizeInGB: 1 } },
    }),
  );
  await sagemaker.waitUntilProcessingJobCompletedOrStopped(
    { client, maxWaitTime: 300, minDelay: 1, maxDelay: 1 },
    { ProcessingJobName: name },
  );
  const job = await client.send(new sagemaker.DescribeProcessingJobCommand({ ProcessingJobName: name }));
  const written = await files.send(new s3.GetObjectCommand({ Bucket: bucket, Key: "js/out/x.txt" }));
  console.log("PREPARED", job.ProcessingJobStatus, await written.Body.transformToString());
  await client.send(new sagemaker.CreateModelPackageGroupCommand({ ModelPackageGroupName: name }));
  const filter = { Name: "ModelPackageGroupName", Operator: "Equals", Value: name };
  const found = await client.send(
    new sagemaker.SearchCommand({ Resource: "ModelPackageGroup", SearchExpression: { Filters: [filter] } }),
  );
  console.log("FOUND", found.Results.length);
}

main();
