SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.pet (
    id integer NOT NULL,
    town integer
);
CREATE TABLE public.town (
    id integer NOT NULL,
    code character varying(5),
    size integer,
    CONSTRAINT size CHECK (((size > 0) OR ((code)::text <> 'x'::text)))
);
COPY public.pet (id, town) FROM stdin;
1	1
2	2
3	\N
\.
COPY public.town (id, code, size) FROM stdin;
1	a	1
2	b	2
3	\N	\N
\.
ALTER TABLE ONLY public.pet
    ADD CONSTRAINT pet_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.town
    ADD CONSTRAINT town_code_key UNIQUE (code);
ALTER TABLE ONLY public.town
    ADD CONSTRAINT town_pkey PRIMARY KEY (id);
CREATE UNIQUE INDEX town_size ON public.town USING btree (size);
ALTER TABLE ONLY public.pet
    ADD CONSTRAINT pet_town_fkey FOREIGN KEY (town) REFERENCES public.town(id) ON DELETE CASCADE DEFERRABLE;
