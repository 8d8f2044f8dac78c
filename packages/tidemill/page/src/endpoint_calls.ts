/** What the service tells about endpoints. Times are in seconds since the epoch. */

import { call, type CallOptions } from "./service";

export interface EndpointSummary {
  EndpointName: string;
  CreationTime: number;
  LastModifiedTime: number;
  EndpointStatus: string;
}

export interface EndpointVariant {
  VariantName: string;
  CurrentWeight?: number;
  DesiredWeight?: number;
  CurrentInstanceCount?: number;
  DesiredInstanceCount?: number;
  CurrentServerlessConfig?: { MemorySizeInMB?: number; MaxConcurrency?: number };
}

export interface Endpoint extends EndpointSummary {
  EndpointConfigName: string;
  FailureReason?: string;
  ProductionVariants?: EndpointVariant[];
  PendingDeploymentSummary?: { EndpointConfigName: string; StartTime?: number };
  DataCaptureConfig?: { DestinationS3Uri: string; CurrentSamplingPercentage: number };
  AsyncInferenceConfig?: { OutputConfig: { S3OutputPath: string; S3FailurePath?: string } };
}

export interface EndpointInstance {
  LogStreamName: string;
  CreationTime: number;
  Ready: boolean;
  RequestsInFlight: number;
}

export interface VariantInstances {
  VariantName: string;
  ModelName: string;
  MultiModel: boolean;
  Serverless: boolean;
  Instances: EndpointInstance[];
}

export interface SignatureTensor {
  Name: string;
  Type: string;
  /** Missing if the number of dimensions may vary; -1 is a size that may vary. */
  Shape?: number[];
}

export interface ModelSignature {
  Name: string;
  Method: string;
  Inputs: SignatureTensor[];
  Outputs: SignatureTensor[];
}

export interface ServedModel {
  Name: string;
  Versions: { Version: string; State: string }[];
  Signatures: ModelSignature[];
}

const NAMES_MAX = 100;

/** A page of endpoints, the newest first. */
export async function listEndpoints(
  words: string,
  token?: string,
  options?: CallOptions,
): Promise<{ Endpoints: EndpointSummary[]; NextToken?: string }> {
  const input = {
    SortBy: "CreationTime",
    SortOrder: "Descending",
    MaxResults: NAMES_MAX,
    ...(words ? { NameContains: words } : {}),
    ...(token ? { NextToken: token } : {}),
  };
  return call("sagemaker", "ListEndpoints", input, options);
}

export function describeEndpoint(name: string, options?: CallOptions): Promise<Endpoint> {
  return call("sagemaker", "DescribeEndpoint", { EndpointName: name }, options);
}

export async function endpointInstances(name: string, options?: CallOptions): Promise<VariantInstances[]> {
  const input = { EndpointName: name };
  return (await call<{ Variants: VariantInstances[] }>("tidemill", "DescribeEndpointInstances", input, options)).Variants;
}

/** The models of a variant's server, which answers without running any. */
export async function servedModels(
  name: string,
  variant: string,
  targetModel: string,
  options?: CallOptions,
): Promise<ServedModel[]> {
  const input = {
    EndpointName: name,
    ...(variant ? { VariantName: variant } : {}),
    ...(targetModel ? { TargetModel: targetModel } : {}),
  };
  return (await call<{ Models: ServedModel[] }>("tidemill", "DescribeServedModels", input, options)).Models;
}

/** Names of endpoint configurations, the newest first. */
export async function endpointConfigs(options?: CallOptions): Promise<string[]> {
  const input = { SortBy: "CreationTime", SortOrder: "Descending", MaxResults: NAMES_MAX };
  const found = await call<{ EndpointConfigs: { EndpointConfigName: string }[] }>(
    "sagemaker",
    "ListEndpointConfigs",
    input,
    options,
  );
  return found.EndpointConfigs.map((each) => each.EndpointConfigName);
}
