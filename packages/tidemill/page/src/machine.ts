/** What DescribeMachine, ListEnvironments and RunDoctor answer. Sizes are in bytes, times in seconds since the epoch. */

export interface MachineShare {
  Kind: "training" | "processing" | "transform";
  /** Missing if this user may not see the job. */
  Name?: string;
  Instances: number;
  Gpus: number;
}

export interface MachineDisk {
  Name: string;
  Path: string;
  TotalBytes: number;
  FreeBytes: number;
}

export interface Machine {
  HostName: string;
  System: string;
  Cpus: { Count: number; LoadAverage: number[] };
  Memory: { TotalBytes: number; AvailableBytes: number };
  Gpus: { Index: string; Uuid: string; Name: string; Memory: string; Driver: string }[];
  Disks: MachineDisk[];
  Capacity: { Instances: number; FreeInstances: number; Gpus: number; SharesGpus: boolean };
  Running: MachineShare[];
  Waiting: MachineShare[];
  Service: {
    Url: string;
    PublicUrl?: string;
    Region: string;
    StateDir: string;
    Pid: number;
    StartTime: number;
    Isolation: string;
    IsolationReason: string;
    Warm: boolean;
    Executor: string;
    DefaultFramework: string;
  };
  Versions: { Name: string; Version: string }[];
}

export interface BuiltEnvironment {
  Name: string;
  Framework?: string;
  Python: string;
  Key: string;
  SizeBytes: number;
  LastUse: number;
  Path: string;
}

export interface Finding {
  Name: string;
  Level: "ok" | "warn" | "fail";
  Text: string;
  Remedy: string;
}
