"""Files of the machine that a job must not read although its user can: credentials and keys, by class.

HOME and the user's home directory are hidden as a whole (`mounts`), so the personal ones only matter if that is a
directory of the system, as with ``HOME=/`` in a container.
"""

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path

_SYSTEM = (
    # passwords, and their copies
    *("etc/shadow", "etc/shadow-", "etc/gshadow", "etc/gshadow-", "etc/security/opasswd", "var/backups"),
    # private keys of the machine's services
    *("etc/ssh/*_key", "etc/ssl/private", "etc/pki/tls/private", "etc/letsencrypt", "etc/krb5.keytab"),
    # networks
    *("etc/NetworkManager/system-connections", "etc/wpa_supplicant", "etc/wireguard", "etc/openvpn", "etc/ppp"),
    # clusters, and the user data of clouds
    *("etc/kubernetes", "etc/rancher", "var/lib/kubelet", "var/lib/rancher", "var/lib/cloud", "etc/docker"),
    # rights of users
    *("etc/sudoers", "etc/sudoers.d"),
)
_PERSONAL = (
    *(".aws", ".azure", ".boto", ".config", ".docker", ".git-credentials", ".gnupg", ".kube", ".my.cnf", ".netrc"),
    *(".pgpass", ".pypirc", ".ssh", ".local/share/keyrings"),
)
_NAMED_BY = (
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_CONFIG_DIR"),
    *("CLOUDSDK_CONFIG", "DOCKER_CONFIG", "GNUPGHOME", "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG", "NETRC"),
    *("PGPASSFILE", "TIDEMILL_CONFIG", "XDG_CONFIG_HOME"),
)
"""Variables that name files with credentials; a list of files is separated by colons."""


def system_secrets(root: Path = Path("/")) -> Iterator[Path]:
    """Yield the files and directories with secrets of the machine and of this user."""
    for pattern in _SYSTEM:
        yield from sorted(root.glob(pattern)) if "*" in pattern else (root / pattern,)
    homes = [os.environ.get("HOME") or "/"]
    with contextlib.suppress(KeyError):  # a user without an entry, as in containers
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    yield from (root / home.lstrip("/") / name for home in dict.fromkeys(homes) for name in _PERSONAL)


def credential_files(variables: Mapping[str, str]) -> list[Path]:
    """Return the absolute paths with credentials that an environment names.

    Returns:
        They need not exist.
    """
    named = [Path(part) for name in _NAMED_BY for part in variables.get(name, "").split(":")]
    return [path for path in named if path.is_absolute()]
