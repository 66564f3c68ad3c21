#!/usr/bin/env python3
"""Runs on several file systems that are killed, stopped, filled, made read-only and damaged.

    scripts/campaign_disks.py FERRY [--fuse BUILD/tests/fuse_disk] [--seconds 60] [--seed 1] [--only tmpfs,ext4]

Each round draws a file system, a model and a misfortune from the seed. In the end the result must be that of a run
that nothing happened to, to the bit; every checkpoint that stands must verify; nothing temporary may be left. Prints
a line for each file system, and names what this machine does not allow. Mounts are in a namespace of its own (root).
"""
import argparse
import glob
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

STEPS = 60
SETTINGS = ["per_device_train_batch_size=2", "threads=1", "device=host", "save_steps=2", "save_total_limit=2",
            "learning_rate=1e-3", "lr_scheduler_type=constant", f"max_steps={STEPS}"]


class Skip(Exception):
    pass


class Fault(Exception):
    pass


def call(*words):
    if not shutil.which(words[0]):
        raise Skip(f"{words[0]} is not installed")
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Skip(f"{words[0]}: {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.returncode}")


# ---- file systems ----

class Disk:
    """A mounted file system of so many MiB at self.path."""

    can_read_only = False

    def __init__(self, work, mib):
        self.work, self.mib, self.mounts = work, mib, []
        self.path = self.make("disk")

    def make(self, name):
        path = os.path.join(self.work, name)
        os.makedirs(path, exist_ok=True)
        return path

    def mount(self, path, *words):
        call("mount", *words, path)
        self.mounts.append(path)

    def tmpfs(self, path):
        self.mount(path, "-t", "tmpfs", "-o", f"size={self.mib}m,mode=777", "campaign")

    def close(self):
        for path in reversed(self.mounts):
            subprocess.run(["umount", "-l", path], stderr=subprocess.DEVNULL, check=False)


class Tmpfs(Disk):
    name = "tmpfs"

    def open(self):
        self.tmpfs(self.path)


class Ext4(Disk):
    name = "ext4"

    def open(self):
        image = os.path.join(self.work, "image")
        with open(image, "wb") as f:
            f.truncate(max(self.mib, 16) << 20)
        call("mkfs.ext4", "-q", "-F", image)
        self.mount(self.path, "-o", "loop", image)


class Btrfs(Disk):
    """Room that ends by a quota, of a subvolume: EDQUOT, which statvfs knows nothing of."""

    name = "btrfs with quota"

    def open(self):
        image, top = os.path.join(self.work, "image"), self.make("top")
        with open(image, "wb") as f:
            f.truncate(max(2 * self.mib, 256) << 20)
        call("mkfs.btrfs", "-q", "-f", image)
        self.mount(top, "-o", "loop", image)
        self.path = os.path.join(top, "disk")
        call("btrfs", "subvolume", "create", self.path)
        call("btrfs", "quota", "enable", top)
        call("btrfs", "qgroup", "limit", f"{self.mib}M", self.path)


class Overlay(Disk):
    name = "overlayfs"

    def open(self):
        under = self.make("under")
        self.tmpfs(under)
        for part in ("lower", "upper", "work"):
            os.makedirs(os.path.join(under, part))
        self.mount(self.path, "-t", "overlay", "-o",
                   f"lowerdir={under}/lower,upperdir={under}/upper,workdir={under}/work", "campaign")


class Fuse(Disk):
    """Hidden names for open files, no O_DIRECT, no exchange of names; can be made full and read-only."""

    name, options, can_read_only = "FUSE", [], True

    def open(self):
        if not Fuse.program:
            raise Skip("fuse_disk is not built (libfuse3-dev)")
        if not os.path.exists("/dev/fuse"):
            raise Skip("/dev/fuse is not there")
        under = self.make("under")
        self.tmpfs(under)
        self.process = subprocess.Popen([Fuse.program, under, self.path, *self.options],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.time() + 5
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.time() > end:
                self.process.kill()
                raise Skip(f"fuse_disk does not mount: {self.process.communicate()[1].strip()}")
            time.sleep(0.01)
        self.mounts.append(self.path)

    def close(self):
        super().close()
        if getattr(self, "process", None):
            self.process.terminate()
            self.process.wait()


class FoldingFuse(Fuse):
    name, options = "FUSE without case", ["fold"]


DISKS = [Tmpfs, Ext4, Btrfs, Overlay, Fuse, FoldingFuse]


# ---- runs ----

class Model:
    def __init__(self, ferry, work, name, vocabulary, hidden):
        self.name, self.dir, self.data = name, os.path.join(work, name), os.path.join(work, name + ".jsonl")
        config = os.path.join(work, name + ".json")
        with open(config, "w") as f:
            json.dump({"model_type": "llama", "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": 48,
                       "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 64}, f)
        draw = random.Random(7)
        with open(self.data, "w") as f:
            for _ in range(40):
                f.write(json.dumps({"input_ids": [draw.randrange(64) for _ in range(draw.randrange(4, 16))]}) + "\n")
        subprocess.run([ferry, "init", f"config={config}", f"output_dir={self.dir}", "seed=1"],
                       stdout=subprocess.DEVNULL, check=True)
        self.ferry, self.out = ferry, os.path.join(work, name + ".straight")
        if self.wait(self.start(self.out, os.path.join(work, "log"))):
            sys.exit("the run that nothing happens to failed")
        self.result, self.rows = result_of(self.out), rows_of(self.out)

    def start(self, out, log, *more):
        with open(log, "a") as f:
            return subprocess.Popen([self.ferry, "train", f"model={self.dir}", f"data={self.data}",
                                     f"output_dir={out}", *SETTINGS, *more], stdout=subprocess.DEVNULL, stderr=f)

    @staticmethod
    def wait(process, timeout=120):
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Fault("a run hangs") from None


def result_of(out):
    with open(os.path.join(out, "model/model.safetensors"), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def rows_of(out):
    rows = []
    with open(os.path.join(out, "metrics.jsonl")) as f:
        for line in f:
            row = json.loads(line)
            rows.append((row["step"], row["loss"], row["grad_norm"]))
    return rows


def lines_in(path):
    try:
        with open(path, "rb") as f:
            return f.read().count(b"\n")
    except OSError:
        return 0


class Round:
    def __init__(self, disk, model, draw, counts):
        self.disk, self.model, self.draw, self.counts = disk, model, draw, counts
        self.out = os.path.join(disk.path, "run")
        self.log = os.path.join(disk.work, "log")

    def count(self, what, n=1):
        self.counts[what] = self.counts.get(what, 0) + n

    def start(self):
        return self.model.start(self.out, self.log, "resume_from_checkpoint=auto")

    def wait_for_rows(self, process, rows):
        while process.poll() is None and lines_in(os.path.join(self.out, "metrics.jsonl")) < rows:
            time.sleep(0.002)

    def finish(self, process=None):
        code = self.model.wait(process or self.start())
        if code:
            raise Fault(f"exit code {code}")

    # misfortunes

    def killed(self):
        for _ in range(self.draw.randrange(1, 9)):
            process = self.start()
            if self.draw.random() < 0.5:
                self.wait_for_rows(process, self.draw.randrange(STEPS))
            time.sleep(self.draw.random() * 0.2)
            process.kill()
            process.wait()
            self.count("kills")
        self.finish()

    def stopped(self):
        process = self.start()
        self.wait_for_rows(process, self.draw.randrange(2, STEPS))
        process.send_signal(self.draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]))
        code = self.model.wait(process)
        self.count("signals")
        if code not in (0, 3):
            raise Fault(f"exit code {code} after a signal")
        self.finish()

    def full(self):
        process = self.start()
        self.wait_for_rows(process, self.draw.randrange(1, STEPS // 2))
        fill = os.path.join(self.disk.path, "fill")
        try:
            with open(fill, "wb", buffering=0) as f:
                size = 65536
                while size:
                    try:
                        f.write(b"x" * size)
                    except OSError:
                        size //= 2
        except OSError:
            pass
        time.sleep(self.draw.random())
        os.unlink(fill)
        self.count("full disks")
        self.finish(process)

    def read_only(self):
        if not self.disk.can_read_only:
            return self.killed()
        process = self.start()
        self.wait_for_rows(process, self.draw.randrange(1, STEPS // 2))
        which = self.draw.choice([signal.SIGUSR1, signal.SIGUSR2])
        self.disk.process.send_signal(which)
        time.sleep(self.draw.random())
        self.disk.process.send_signal(which)
        self.count("read-only" if which == signal.SIGUSR1 else "full disks")
        return self.finish(process)

    def damaged(self):
        process = self.start()
        self.wait_for_rows(process, self.draw.randrange(STEPS // 2, STEPS))
        process.send_signal(signal.SIGTERM)
        self.model.wait(process)
        shards = sorted(glob.glob(os.path.join(self.out, "checkpoint-*/rank-00000.safetensors")))
        if len(shards) > 1:
            with open(shards[-1], "r+b") as f:
                f.seek(self.draw.randrange(os.path.getsize(shards[-1])))
                byte = f.read(1)
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([byte[0] ^ 1 << self.draw.randrange(8)]))
            self.count("damaged checkpoints")
        aside = os.path.join(self.out, "abandoned-1")
        if self.model.wait(self.start()):  # what is damaged is kept, and the disk may lack that room
            if not os.path.isdir(aside):
                raise Fault("it ends, and nothing was kept aside")
            shutil.rmtree(aside)
            self.count("without room for the damaged one")
        self.finish()

    def check(self):
        names = os.listdir(self.out)
        left = [n for n in names if n.endswith(".tmp") or n.startswith((".fuse", ".ferry"))]
        checkpoints = [n for n in names if n.startswith("checkpoint-")]
        if left:
            raise Fault(f"left behind: {left}")
        if not 1 <= len(checkpoints) <= 2:
            raise Fault(f"checkpoints: {checkpoints}")
        if subprocess.run([self.model.ferry, "verify", self.out], stdout=subprocess.DEVNULL, check=False).returncode:
            raise Fault("a checkpoint does not verify")
        if result_of(self.out) != self.model.result:
            raise Fault("another result than the run that nothing happened to")
        if rows_of(self.out) != self.model.rows:
            raise Fault("other rows in metrics.jsonl")
        self.count("rounds")


MISFORTUNES = [Round.killed, Round.killed, Round.stopped, Round.full, Round.read_only, Round.damaged]


# ---- the campaign ----

def run_round(kind, model, draw, counts, work, misfortune):
    place = tempfile.mkdtemp(dir=work)
    disk = kind(place, model.mib)
    try:
        disk.open()
        one = Round(disk, model, draw, counts)
        try:
            misfortune(one)
            one.check()
        except Fault as fault:
            print(f"FAULT on {kind.name}, {model.name}, {misfortune.__name__}: {fault}", file=sys.stderr)
            with open(one.log) as f:
                print("".join(f.readlines()[-12:]), file=sys.stderr)
            print(os.listdir(one.out), file=sys.stderr)
            sys.exit(1)
    finally:
        disk.close()
        shutil.rmtree(place, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ferry")
    parser.add_argument("--fuse", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    names = [kind.name for kind in DISKS]
    parser.add_argument("--only", default=",".join(names), type=lambda text: text.split(","))
    options = parser.parse_args()
    for name in options.only:
        if name not in names:
            parser.error(f"--only: no file system is called {name}; there are {', '.join(names)}")
    if "FERRY_CAMPAIGN_INSIDE" not in os.environ:
        inside = dict(os.environ, FERRY_CAMPAIGN_INSIDE="1")
        if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            print("SKIPPED campaign_disks: this machine lets nobody mount (unshare -m)")
            sys.exit(77)
        sys.exit(subprocess.run(["unshare", "-m", "--propagation", "private", sys.executable, *sys.argv],
                                env=inside, check=False).returncode)
    Fuse.program = os.path.abspath(options.fuse) if os.path.exists(options.fuse) else ""
    work = tempfile.mkdtemp(prefix="ferry-disks-")
    draw, skipped = random.Random(options.seed), {}
    counts = {kind.name: {} for kind in DISKS}
    wanted = [k for k in DISKS if k.name in options.only]
    try:
        ferry = os.path.abspath(options.ferry)
        models = [Model(ferry, work, "small", 64, 32), Model(ferry, work, "large", 40000, 32)]
        models[0].mib, models[1].mib = 2, 128
        end, number = time.time() + options.seconds, 0
        while (time.time() < end or number < len(wanted)) and wanted:
            kind = wanted[number % len(wanted)]
            number += 1
            model = models[1] if draw.random() < 0.3 else models[0]
            misfortune = draw.choice(MISFORTUNES)
            try:
                run_round(kind, model, draw, counts[kind.name], work, misfortune)
            except Skip as why:
                skipped[kind.name] = str(why)
                wanted.remove(kind)
                number = 0
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for name, found in counts.items():
        if found:
            print(f"{name}: " + ", ".join(f"{n} {what}" for what, n in sorted(found.items(), reverse=True)))
    for name, why in skipped.items():
        print(f"SKIPPED {name}: {why}")
    print(f"seed {options.seed}: no fault")
    sys.exit(0 if any(counts.values()) else 77)


main()
