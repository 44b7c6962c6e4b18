"""Workload noop-4 as a taskset of verifiers 0.4: tasks, their reward, and the toolset."""

import verifiers.v1 as vf

from noop_taskset.servers.tool import NoopToolset


class Config(vf.TasksetConfig):
    """What the taskset takes."""

    tools: vf.SharedToolsetConfig = vf.SharedToolsetConfig()
    tasks: int = 512


class NoopTask(vf.Task[vf.TaskData]):
    """One task."""

    @vf.reward
    async def done(self, trace: vf.Trace) -> float:
        """Whether the last message is the answer."""
        return float("done" in str(trace.last_reply))


class NoopTaskset(vf.Taskset[NoopTask, Config]):
    """So many equal tasks."""

    def load(self):
        """The tasks."""
        for number in range(self.config.tasks):
            yield NoopTask(vf.TaskData(idx=number, prompt="Call noop until you are told to stop."), self.config.task)

    @classmethod
    def toolsets(cls, config: Config):
        """The toolset, shared."""
        return [NoopToolset(config.tools)]


__all__ = ["NoopTaskset"]
