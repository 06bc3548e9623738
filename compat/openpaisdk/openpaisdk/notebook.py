"""The current notebook."""

import os


def get_notebook_path():
    """Return the file of the current notebook."""
    from openpai_tasks.magics.this_notebook import this_notebook

    return str(this_notebook(unsaved=True).path)


def parse_notebook_path():
    """Return the name, the folder and the extension of the current notebook's file."""
    folder, file = os.path.split(get_notebook_path())
    name, extension = os.path.splitext(file)
    return name, folder, extension


def submit_notebook(image=None, nb_file=None, job_name=None, pip_requirements=None, **options):
    """Submit the current notebook and return the address of the job's page; do nothing inside a job."""
    from openpaisdk.core import in_job_container

    if in_job_container():
        return None
    import openpai_tasks
    from openpaisdk.job import Job

    packages = [word for word in pip_requirements or () if word] or None
    flags = {"image": image, "job_name": job_name, "pip_installs": packages, **options}
    job = openpai_tasks.submit_this_notebook(nb_file, **flags)
    return Job(job.name, options.get("cluster_alias")).url
