#!/bin/sh
# customize.sh ROOTFS: turns a Debian root file system into that of a lab host (run by mmdebstrap as its last hook).
# Everything here is the same for all hosts of all instances; lab-init adds the rest at first boot.
set -eu
rootfs=$1
here=$(cd "$(dirname "$0")" && pwd)

cp -r --preserve=mode "$here/rootfs/." "$rootfs/"

add_user() { chroot "$rootfs" useradd --no-create-home --home-dir "/home/$2" --uid "$1" --shell /bin/bash "$2"; }
add_user 1000 alice # submits jobs
add_user 1001 bob   # submits jobs
add_user 1002 carol # administers Slurm by hand

install -d -m 0755 -o 64030 -g 64030 "$rootfs/var/log/slurm" "$rootfs/var/spool/slurmctld"
install -d -m 0755 "$rootfs/var/spool/slurmd" "$rootfs/etc/lab" "$rootfs/opt/lab" "$rootfs/opt/kube"
install -d -m 0700 "$rootfs/root/.ssh"

# What makes no sense in a container, or would touch the machine below it.
for unit in systemd-sysctl.service systemd-networkd-wait-online.service systemd-udevd.service getty@tty1.service \
    console-getty.service getty.target systemd-binfmt.service sys-kernel-debug.mount sys-kernel-tracing.mount \
    dev-hugepages.mount dev-mqueue.mount e2scrub_all.timer fstrim.timer apt-daily.timer apt-daily-upgrade.timer \
    systemd-firstboot.service; do
    ln -sf /dev/null "$rootfs/etc/systemd/system/$unit"
done
chroot "$rootfs" systemctl --quiet enable munge ssh slurmd slurmctld slurmdbd mariadb
# Enabled by whoever configures them.
chroot "$rootfs" systemctl --quiet disable containerd docker-registry slurmrestd apache-htcacheclean || true

# Each host gets its own from its seed.
rm -f "$rootfs/etc/machine-id" "$rootfs"/etc/ssh/ssh_host_* "$rootfs/etc/munge/munge.key"
: > "$rootfs/etc/machine-id"
: > "$rootfs/etc/resolv.conf"
