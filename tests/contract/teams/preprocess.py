"""Scale features in a processing job: every instance has a part of the files, and writes a part of each output."""

import glob
import os

import numpy as np
from sklearn.preprocessing import StandardScaler

BASE = "/opt/ml/processing"

for path in sorted(glob.glob(f"{BASE}/input/x_*.npy")):
    name = os.path.basename(path).removeprefix("x_")
    kind = name.split("_")[0]
    scaled = StandardScaler().fit_transform(np.load(path))
    os.makedirs(f"{BASE}/{kind}", exist_ok=True)
    np.save(f"{BASE}/{kind}/x_{name}", scaled)
    print(f"SCALED {name} on {os.uname().nodename}", flush=True)
